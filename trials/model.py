"""The chunks of the model that one rank holds: embedding in the first, layers, final norm and head in the last.

Shapes: b sequences, s positions, h hidden size.  A stage is one chunk, or several where stages are interleaved.  It
decides what a chunk holds; which layers is `stages.py`'s, when it runs `pipeline`'s.
"""

from __future__ import annotations

from torch import Tensor, nn

from trials.attention import RotaryPositions
from trials.block import INITIAL, Block, Norm
from trials.context import BuildContext
from trials.parameters import ShardedParameter
from trials.recompute import run_block
from trials.stages import stage_chunks
from trials.vocab import VocabParallelEmbedding, VocabParallelHead, vocabulary_placement

TOKEN_TABLE = "embedding.tokens"  # noqa: S105 - a table of tokens, not a secret
HEAD_TABLE = "head.weight"


class Embedding(nn.Module):
    """Tokens [b, s] -> [b, s, h], with learned positions if the model has them."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        shape = context.shape
        self.tokens = VocabParallelEmbedding(
            _table(context, TOKEN_TABLE, counted=True), vocab_size=shape.vocab_size, group=context.mesh.tp
        )
        self.positions: ShardedParameter | None = None
        if shape.position == "learned":
            self.positions = context.declare_replicated(
                "embedding.positions", shape.max_seq_len, shape.hidden_size, initial=INITIAL
            )

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, s] -> [b, s, h]."""
        hidden: Tensor = self.tokens(tokens)
        return hidden if self.positions is None else hidden + self.positions[: tokens.shape[1]]


class ChunkModel(nn.Module):
    """A run of layers. `embedding` and `norm` with `head` are None where the chunk is not the model's first or last.

    Tied tables are one parameter where one chunk has both ends; else each end has a copy of its own, of which the
    first's counts in norms and totals.
    """

    def __init__(self, context: BuildContext, *, layers: range, rotary: RotaryPositions | None) -> None:
        super().__init__()
        self._recompute = context.recompute
        self.embedding = Embedding(context) if layers.start == 0 else None
        self.blocks = nn.ModuleList(Block(context, index=index, rotary=rotary) for index in layers)
        is_last = layers.stop == context.shape.num_layers
        self.norm = Norm(context, prefix="final_norm") if is_last else None
        self.head = self._build_head(context) if is_last else None

    def _build_head(self, context: BuildContext) -> VocabParallelHead:
        if not context.shape.tied_embeddings:
            table = _table(context, HEAD_TABLE, counted=True)
        elif self.embedding is not None:
            table = self.embedding.tokens.weight
        else:
            table = _table(context, TOKEN_TABLE, counted=False)
        return VocabParallelHead(table, vocab_size=context.shape.vocab_size, group=context.mesh.tp)

    def forward(self, stage_input: Tensor) -> Tensor:
        """Tokens [b, s] in the first chunk, else hidden [b, s, h] -> hidden [b, s, h]."""
        hidden = stage_input if self.embedding is None else self.embedding(stage_input)
        for block in self.blocks:
            hidden = run_block(block, hidden, mode=self._recompute)
        return hidden if self.norm is None else self.norm(hidden)

    def loss(self, hidden: Tensor, targets: Tensor, *, scale: float) -> Tensor:
        """Last chunk only: hidden [b, s, h], targets [b, s] -> the sum of the losses times `scale`."""
        if self.head is None:
            raise ValueError("only the last chunk computes a loss")
        result: Tensor = self.head(hidden.flatten(0, 1), targets.reshape(-1), scale=scale)
        return result


class StageModel(nn.Module):
    """What one rank runs: its chunks in model order."""

    def __init__(self, context: BuildContext, *, virtual_stages: int) -> None:
        super().__init__()
        shape, mesh = context.shape, context.mesh
        rotary = None
        if shape.position == "rope":
            rotary = RotaryPositions(head_dim=shape.head_dim, max_seq_len=shape.max_seq_len, device=context.device)
        ranges = stage_chunks(shape.num_layers, pp=mesh.grid.pp, stage=mesh.at.pp_rank, virtual_stages=virtual_stages)
        self.chunks = [ChunkModel(context, layers=layers, rotary=rotary) for layers in ranges]
        self._modules["chunk"] = nn.ModuleList(self.chunks)  # A list alone would hide their parameters.

    @property
    def num_layers(self) -> int:
        """Layers of all chunks."""
        return sum(len(chunk.blocks) for chunk in self.chunks)

    @property
    def shared_table(self) -> ShardedParameter | None:
        """This stage's end of the tied tables, whose gradient is summed over both; only meaningful in a pipeline."""
        if self.chunks[0].embedding is not None:
            return self.chunks[0].embedding.tokens.weight
        return None if self.chunks[-1].head is None else self.chunks[-1].head.weight

    def sharded_parameters(self) -> list[ShardedParameter]:
        """Every parameter once, in model order."""
        return [parameter for parameter in self.parameters() if isinstance(parameter, ShardedParameter)]


def _table(context: BuildContext, name: str, *, counted: bool) -> ShardedParameter:
    placement = vocabulary_placement(
        name,
        vocab_size=context.shape.vocab_size,
        hidden_size=context.shape.hidden_size,
        parts=context.mesh.tp.size,
        index=context.mesh.tp.rank,
        counted=counted,
    )
    return context.declare(placement, INITIAL)
