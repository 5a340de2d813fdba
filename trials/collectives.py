"""A group of ranks and what they say to each other; every call is a no-op in a group of one.

It decides how a collective is issued and whose clock it runs on.  It does not decide which ranks form a group
(`mesh.py`) nor when gradients are reduced (`gradients.py`).  Autograd pairs take their group as an argument, as in
Megatron-LM's mappings (Shoeybi et al. 2019, section 3: g is an all-reduce forward and the identity backward; its
conjugate f sits inside the column-parallel linear layer, where it overlaps with the weight gradient).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trials.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`ranks` are global ranks in group order, `rank` is this process' place among them.

    `handle` is None only in a group of one. `clock` names the span in the stopwatch.
    """

    ranks: tuple[int, ...]
    rank: int
    handle: dist.ProcessGroup | None
    stopwatch: Stopwatch
    clock: str

    @property
    def size(self) -> int:
        """Ranks in the group."""
        return len(self.ranks)

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        """Sum over the group, in place."""
        if self.size > 1:
            with self.stopwatch.span(self.clock):
                dist.all_reduce(tensor, group=self.handle)
        return tensor

    def all_reduce_max_(self, tensor: Tensor) -> Tensor:
        """Largest value over the group, element by element, in place."""
        if self.size > 1:
            with self.stopwatch.span(self.clock):
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.handle)
        return tensor

    def start_all_reduce_(self, tensor: Tensor) -> dist.Work | None:
        """Begin a sum in place; `finish` must be called before the tensor is read."""
        if self.size == 1:
            return None
        work: dist.Work | None = dist.all_reduce(tensor, group=self.handle, async_op=True)
        return work

    def finish(self, work: dist.Work | None) -> None:
        """Wait for a started collective; only the wait counts as communication, for the rest was hidden."""
        if work is not None:
            with self.stopwatch.span(self.clock):
                work.wait()

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Tensors of the same shape [...] from all ranks, stacked: [size, ...]."""
        if self.size == 1:
            return tensor.unsqueeze(0)
        parts = [torch.empty_like(tensor) for _ in self.ranks]
        with self.stopwatch.span(self.clock):
            dist.all_gather(parts, tensor.contiguous(), group=self.handle)
        return torch.stack(parts)


class _ReduceFromGroup(torch.autograd.Function):
    """g: sum forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: Group) -> Tensor:
        ctx.mark_dirty(partial)
        return group.all_reduce_(partial)

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


_reduce_from_group: Callable[..., Tensor] = _ReduceFromGroup.apply


def reduce_from_group(partial: Tensor, *, group: Group) -> Tensor:
    """Sum of the ranks' partial results, which is overwritten; the gradient goes to every rank unchanged."""
    if group.size == 1:
        return partial
    return _reduce_from_group(partial, group)
