"""Embedding and loss over a vocabulary that is cut over the tensor-parallel group.

Shapes: b sequences, s positions, n = b s tokens, h hidden size, V vocabulary, t ranks.  A vocabulary that t does not
divide is cut into t blocks of ceil(V / t) rows; the last block's surplus rows are zeros, are never looked up and never
become logits, so that every t computes the same loss.  Who holds the table is `model.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.collectives import Group, reduce_from_group
from trials.parameters import Placement, ShardedParameter, accumulate_product_

# Logits exist for one block of tokens at a time, in one buffer: on CPU small enough to stay near the caches and to
# spare page faults, on an accelerator large enough to fill it.
LOGITS_BLOCK_BYTES_CPU = 8 * 1024 * 1024
LOGITS_BLOCK_BYTES_ACCELERATOR = 256 * 1024 * 1024
MIN_BLOCK_TOKENS = 128


def vocabulary_block(vocab_size: int, *, parts: int, index: int) -> tuple[int, int]:
    """First row of part `index` and its rows, padding included."""
    rows = -(-vocab_size // parts)
    return index * rows, rows


def vocabulary_placement(
    name: str, *, vocab_size: int, hidden_size: int, parts: int, index: int, counted: bool
) -> Placement:
    """Part `index` of a table [V, h] cut by rows."""
    start, rows = vocabulary_block(vocab_size, parts=parts, index=index)
    return Placement(
        name=name,
        shape=(vocab_size, hidden_size),
        dim=0,
        ranges=((start, start + rows),),
        counted_rows=rows if counted else 0,
        copied_from=None,
    )


class _Lookup(torch.autograd.Function):
    """Rows of the local table, zeros for tokens of other ranks; the gradient goes straight into the flat buffer."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: ShardedParameter, start: int) -> Tensor:
        local = tokens - start
        outside = (local < 0) | (local >= table.shape[0])
        local = local.masked_fill(outside, 0)
        ctx.save_for_backward(local, outside)
        ctx.table = table
        return functional.embedding(local, table).masked_fill_(outside.unsqueeze(-1), 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        local, outside = ctx.saved_tensors
        target = ctx.table.main_grad
        rows = gradients[0].masked_fill(outside.unsqueeze(-1), 0.0).reshape(-1, target.shape[1])
        target.index_add_(0, local.reshape(-1), rows.to(target.dtype))
        return None, None, None


_lookup: Callable[..., Tensor] = _Lookup.apply


class VocabParallelEmbedding(nn.Module):
    """Tokens [b, s] -> [b, s, h] on every rank of the group. Weight [ceil(V / t), h]."""

    def __init__(self, weight: ShardedParameter, *, vocab_size: int, group: Group) -> None:
        super().__init__()
        self.weight, self._group = weight, group
        self._start, _ = vocabulary_block(vocab_size, parts=group.size, index=group.rank)

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, s] -> [b, s, h]."""
        return reduce_from_group(_lookup(tokens, self.weight, self._start), group=self._group)


class VocabParallelHead(nn.Module):
    """Output table and cross entropy in one: hidden [n, h], targets [n] -> the sum of the losses times `scale`.

    The logits' gradient follows from the logits at once (softmax minus target), so that a block of logits is turned
    into its gradient in place and is gone before the next block: no [n, V] tensor is ever kept.  Backward therefore
    only hands on what forward computed.  Weight [ceil(V / t), h].
    """

    def __init__(self, weight: ShardedParameter, *, vocab_size: int, group: Group) -> None:
        super().__init__()
        self.weight, self._group = weight, group
        self._start, rows = vocabulary_block(vocab_size, parts=group.size, index=group.rank)
        self._rows = min(rows, vocab_size - self._start)
        on_cpu = weight.device.type == "cpu"
        block_bytes = LOGITS_BLOCK_BYTES_CPU if on_cpu else LOGITS_BLOCK_BYTES_ACCELERATOR
        self._block_tokens = max(MIN_BLOCK_TOKENS, block_bytes // (4 * self._rows))

    def forward(self, hidden: Tensor, targets: Tensor, *, scale: float) -> Tensor:
        """[n, h], [n] -> scalar, fp32."""
        return _head_loss(hidden, targets, self, scale)

    def run_blocks(self, hidden: Tensor, targets: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
        """Loss (scalar) and gradient of `hidden` [n, h]; the weight's gradient is accumulated."""
        loss = torch.zeros((), device=hidden.device)
        hidden_grad = torch.empty_like(hidden)
        table = self.weight[: self._rows]
        tokens = min(self._block_tokens, hidden.shape[0])
        buffer = torch.empty(tokens, self._rows, device=hidden.device, dtype=hidden.dtype)
        for first in range(0, hidden.shape[0], tokens):
            block = slice(first, min(first + tokens, hidden.shape[0]))
            inputs = hidden[block]
            products = torch.mm(inputs, table.t(), out=buffer[: inputs.shape[0]])
            logits = products.float()  # the same tensor in fp32
            loss += self._loss_to_gradient_(logits, targets[block], scale=scale)
            logits_grad = logits.to(hidden.dtype)
            torch.mm(logits_grad, table, out=hidden_grad[block])
            accumulate_product_(self.weight, logits_grad, inputs, rows=self._rows)
        # Each rank has the gradient through its own part of the vocabulary.
        return loss, self._group.all_reduce_(hidden_grad)

    def _loss_to_gradient_(self, logits: Tensor, targets: Tensor, *, scale: float) -> Tensor:
        """Replace logits [n, V / t] by their gradient; return the loss (scalar). One collective for all statistics."""
        local = targets - self._start
        outside = (local < 0) | (local >= self._rows)
        local = local.masked_fill(outside, 0).unsqueeze(-1)
        maximum = logits.amax(-1)
        target_logit = logits.gather(-1, local).squeeze(-1).masked_fill(outside, 0.0)
        exponentials = logits.sub_(maximum.unsqueeze(-1)).exp_()
        total = exponentials.sum(-1)
        shift = torch.zeros_like(maximum)
        if self._group.size > 1:
            maxima, totals, target_logits = self._group.all_gather(torch.stack((maximum, total, target_logit))).unbind(
                1
            )
            overall = maxima.amax(0)
            shift = maximum - overall
            total = (totals * (maxima - overall).exp()).sum(0)
            maximum, target_logit = overall, target_logits.sum(0)
        gradient = exponentials.mul_((shift.exp() / total * scale).unsqueeze(-1))
        gradient.scatter_add_(-1, local, torch.where(outside, 0.0, -scale).unsqueeze(-1))
        return (total.log() + maximum - target_logit).sum() * scale


class _HeadLoss(torch.autograd.Function):
    """Lets autograd see the head as one step from hidden to loss."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, targets: Tensor, head: VocabParallelHead, scale: float) -> Tensor:
        loss, hidden_grad = head.run_blocks(hidden, targets, scale=scale)
        ctx.save_for_backward(hidden_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (hidden_grad,) = ctx.saved_tensors
        # The loss is the root of the graph: its gradient is 1, and the weight's part has been accumulated already.
        return hidden_grad * gradients[0].to(hidden_grad.dtype), None, None, None


_head_loss: Callable[..., Tensor] = _HeadLoss.apply
