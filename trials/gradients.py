"""Sums of gradients over ranks, after the last micro-batch's backward.

Three sums, each linear, so their order is free: copies of key and value heads (each has the part of its own query
heads), the two copies of tied embeddings, and the replicas of the whole model in large buckets.  Parameters that
tensor-parallel ranks hold whole (norms, positions, output biases) need none: all see the same gradient.
There is no hiding behind backward: on CPU no core is idle then.  The loss is scaled so that sums are means.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from trials.flat import FlatParameters
from trials.mesh import ParallelMesh
from trials.parameters import ShardedParameter

BUCKET_ELEMENTS = 8 * 1024 * 1024
# BLAS counts in 32 bits.
MAX_DOT_ELEMENTS = 1 << 30


class GradientSync:
    """The gradient sums of one rank."""

    def __init__(self, flat: FlatParameters, *, mesh: ParallelMesh, shared_table: ShardedParameter | None) -> None:
        """`shared_table` is this stage's copy of tied embeddings, None without."""
        self._flat, self._mesh, self._shared_table = flat, mesh, shared_table
        self._copied = [
            parameter.main_grad[parameter.placement.copied_from :]
            for parameter in flat.parameters
            if parameter.placement.copied_from is not None
        ]

    def run(self) -> None:
        """Make the flat gradient buffer the gradient of the global batch."""
        self._sum_copied_heads()
        if self._shared_table is not None:
            self._mesh.embedding.all_reduce_(self._shared_table.main_grad)
        self._sum_replicas()

    def _sum_copied_heads(self) -> None:
        if not self._copied:
            return
        packed = torch.cat([part.flatten() for part in self._copied])
        self._mesh.kv.all_reduce_(packed)
        for part, total in zip(self._copied, torch.split(packed, [part.numel() for part in self._copied]), strict=True):
            part.copy_(total.view(part.shape))

    def _sum_replicas(self) -> None:
        group = self._mesh.dp
        works: list[dist.Work | None] = [
            group.start_all_reduce_(b) for b in torch.split(self._flat.gradients, BUCKET_ELEMENTS)
        ]
        for work in works:
            group.finish(work)


def local_square_sum(segments: list[Tensor], *, device: torch.device) -> Tensor:
    """Sum of squares over this rank's counted gradients, a scalar."""
    total = torch.zeros((), device=device)
    for segment in segments:
        for part in torch.split(segment, MAX_DOT_ELEMENTS):
            total += torch.dot(part, part)
    return total
