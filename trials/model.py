"""One pipeline stage of the model: embedding on the first, its layers, final norm and head on the last.

Shapes: b sequences, s positions, h hidden size.  It decides what a stage holds; which layers is `stages.py`'s,
when it runs `pipeline`'s.
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


class StageModel(nn.Module):
    """What one rank runs. `embedding` and `head` are None where the stage has none.

    Tied tables are one parameter where one stage has both ends; else each end has a copy of its own, of which the first
    stage's counts in norms and totals, and `shared_table` is the copy whose gradient is summed over the two.
    """

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        shape, mesh = context.shape, context.mesh
        self._recompute = context.recompute
        rotary = None
        if shape.position == "rope":
            rotary = RotaryPositions(head_dim=shape.head_dim, max_seq_len=shape.max_seq_len, device=context.device)
        self.embedding = Embedding(context) if mesh.is_first_stage else None
        (layers,) = stage_chunks(shape.num_layers, pp=mesh.grid.pp, stage=mesh.at.pp_rank)
        self.blocks = nn.ModuleList(Block(context, index=index, rotary=rotary) for index in layers)
        self.norm = Norm(context, prefix="final_norm") if mesh.is_last_stage else None
        self.head = self._build_head(context) if mesh.is_last_stage else None

    def _build_head(self, context: BuildContext) -> VocabParallelHead:
        if not context.shape.tied_embeddings:
            table = _table(context, HEAD_TABLE, counted=True)
        elif self.embedding is not None:
            table = self.embedding.tokens.weight
        else:
            table = _table(context, TOKEN_TABLE, counted=False)
        return VocabParallelHead(table, vocab_size=context.shape.vocab_size, group=context.mesh.tp)

    @property
    def shared_table(self) -> ShardedParameter | None:
        """This stage's end of the tied tables; only meaningful in a pipeline of several stages."""
        if self.embedding is not None:
            return self.embedding.tokens.weight
        return None if self.head is None else self.head.weight

    def sharded_parameters(self) -> list[ShardedParameter]:
        """Every parameter once, in model order."""
        return [parameter for parameter in self.parameters() if isinstance(parameter, ShardedParameter)]

    def forward(self, stage_input: Tensor) -> Tensor:
        """Tokens [b, s] on the first stage, else hidden [b, s, h] -> hidden [b, s, h]."""
        hidden = stage_input if self.embedding is None else self.embedding(stage_input)
        for block in self.blocks:
            hidden = run_block(block, hidden, mode=self._recompute)
        return hidden if self.norm is None else self.norm(hidden)

    def loss(self, hidden: Tensor, targets: Tensor, *, scale: float) -> Tensor:
        """Last stage only: hidden [b, s, h], targets [b, s] -> the sum of the losses times `scale`."""
        if self.head is None:
            raise ValueError("only the last stage computes a loss")
        result: Tensor = self.head(hidden.flatten(0, 1), targets.reshape(-1), scale=scale)
        return result


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
