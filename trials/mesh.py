"""The tp x dp x pp grid with its process groups, passed as an argument: there is no global state of ours.

It decides which process groups exist.  Where a rank sits is `ranks.py`'s, what groups do is `collectives.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from trials.collectives import Group
from trials.ranks import Coordinates, Grid
from trials.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelMesh:
    """This rank's place and its groups.

    `embedding` joins first and last stage (tied embeddings), `kv` the tensor-parallel ranks that hold copies of the
    same key and value heads (of size 1 unless tp is larger than the number of key and value heads).
    """

    grid: Grid
    rank: int
    at: Coordinates
    world: Group
    tp: Group
    dp: Group
    pp: Group
    embedding: Group
    kv: Group

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank holds the embedding."""
        return self.at.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank holds the head and computes the loss."""
        return self.at.pp_rank == self.grid.pp - 1


def kv_groups(grid: Grid, *, num_kv_heads: int) -> list[list[int]]:
    """Ranks that hold the same key and value heads: tp / num_kv_heads neighbours where tp is larger, else one each."""
    copies = max(1, grid.tp // num_kv_heads)
    return [ranks[i : i + copies] for ranks in grid.tp_groups() for i in range(0, grid.tp, copies)]


def build_mesh(
    grid: Grid,
    *,
    rank: int,
    num_kv_heads: int,
    tied_embeddings: bool,
    timeout_seconds: float,
    stopwatch: Stopwatch,
) -> ParallelMesh:
    """Create all process groups; every rank must call it with the same arguments but `rank`."""
    timeout = timedelta(seconds=timeout_seconds)
    made: dict[tuple[int, ...], dist.ProcessGroup | None] = {}

    def join(groups: list[list[int]], clock: str) -> Group:
        # new_group is collective over the world: every rank walks through all groups, also those it isn't part of.
        for ranks in groups:
            key = tuple(ranks)
            if len(key) > 1 and key not in made:
                made[key] = dist.group.WORLD if len(key) == grid.world_size else dist.new_group(ranks, timeout=timeout)
        mine = next(tuple(ranks) for ranks in groups if rank in ranks)
        return Group(ranks=mine, rank=mine.index(rank), handle=made.get(mine), stopwatch=stopwatch, clock=clock)

    alone = [[r] for r in range(grid.world_size)]
    tied = tied_embeddings and grid.pp > 1
    return ParallelMesh(
        grid=grid,
        rank=rank,
        at=grid.coordinates_of(rank),
        world=join([list(range(grid.world_size))], "global_sync"),
        tp=join(grid.tp_groups(), "tp_communication"),
        dp=join(grid.dp_groups(), "dp_communication"),
        pp=join(grid.pp_groups(), "pp_communication"),
        embedding=join([*grid.embedding_groups(), *alone] if tied else alone, "pp_communication"),
        kv=join(kv_groups(grid, num_kv_heads=num_kv_heads), "tp_communication"),
    )


def warm_up(mesh: ParallelMesh, *, device: torch.device) -> None:
    """Open every group's connections before anything is timed; NCCL opens them at the first collective."""
    for group in (mesh.world, mesh.tp, mesh.dp, mesh.pp, mesh.embedding, mesh.kv):
        group.all_reduce_(torch.zeros(1, device=device))
