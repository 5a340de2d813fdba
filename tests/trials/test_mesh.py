"""Which ranks hold the same key and value heads, and groups of one that talk to nobody."""

from __future__ import annotations

import torch

from trials.collectives import reduce_from_group
from trials.mesh import build_mesh, kv_groups
from trials.ranks import Grid
from trials.stopwatch import Stopwatch


def test_each_rank_has_heads_of_its_own_while_there_are_enough() -> None:
    assert kv_groups(Grid(tp=2, pp=1, dp=2), num_kv_heads=2) == [[0], [1], [2], [3]]
    assert kv_groups(Grid(tp=2, pp=1, dp=1), num_kv_heads=8) == [[0], [1]]


def test_neighbours_share_heads_where_tp_is_larger() -> None:
    # tp ranks 0-3 of both replicas, two heads: ranks 0, 1 hold the first and 2, 3 the second.
    assert kv_groups(Grid(tp=4, pp=1, dp=2), num_kv_heads=2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert kv_groups(Grid(tp=4, pp=1, dp=1), num_kv_heads=1) == [[0, 1, 2, 3]]


def test_a_world_of_one_needs_no_process_group() -> None:
    stopwatch = Stopwatch(torch.device("cpu"))
    mesh = build_mesh(
        Grid(tp=1, pp=1, dp=1), rank=0, num_kv_heads=1, tied_embeddings=True, timeout_seconds=1.0, stopwatch=stopwatch
    )
    assert mesh.is_first_stage
    assert mesh.is_last_stage
    values = torch.arange(3.0)
    assert mesh.tp.all_reduce_(values) is values
    assert reduce_from_group(values, group=mesh.tp) is values
    assert mesh.dp.start_all_reduce_(values) is None
    assert mesh.world.all_gather(values).tolist() == [[0.0, 1.0, 2.0]]
    assert stopwatch.drain() == {}
