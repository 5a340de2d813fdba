"""What every layer is built from: dimensions, place in the mesh, device and types."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trials.contract import ModelShape
from trials.mesh import ParallelMesh
from trials.parameters import Initial, Placement, ShardedParameter, declare, replicated
from trials.recompute import Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """Passed down while a stage is built. `dtype` is what the layers compute in."""

    shape: ModelShape
    mesh: ParallelMesh
    device: torch.device
    dtype: torch.dtype
    recompute: Recompute

    def declare(self, placement: Placement, initial: Initial) -> ShardedParameter:
        """A parameter on this rank's device, in the type the layers compute in."""
        return declare(placement, initial, device=self.device, dtype=self.dtype)

    def declare_replicated(self, name: str, *shape: int, initial: Initial) -> ShardedParameter:
        """A parameter that all tensor-parallel ranks hold whole and the first of them counts."""
        return self.declare(replicated(name, *shape, counted=self.mesh.tp.rank == 0), initial)
