"""Rank order and layer split: the two rules that trainer and cost model share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.ranks import Grid
from trials.stages import chunk_sizes, stage_chunks, stage_sizes

_grids = st.builds(Grid, tp=st.integers(1, 4), pp=st.integers(1, 4), dp=st.integers(1, 4))


def test_groups_of_a_2x2x2_grid_are_megatrons():
    grid = Grid(tp=2, pp=2, dp=2)
    assert grid.tp_groups() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grid.dp_groups() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert grid.pp_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert grid.embedding_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@given(_grids)
def test_every_rank_is_in_exactly_one_group_of_each_kind(grid):
    for groups in (grid.tp_groups(), grid.dp_groups(), grid.pp_groups()):
        assert sorted(rank for group in groups for rank in group) == list(range(grid.world_size))


@given(_grids)
def test_coordinates_and_ranks_are_inverse(grid):
    assert [grid.rank_of(grid.coordinates_of(rank)) for rank in range(grid.world_size)] == list(range(grid.world_size))


def test_a_rank_outside_the_grid_is_refused():
    with pytest.raises(ValueError, match="rank 8 is outside a grid of 8 ranks"):
        Grid(tp=2, pp=2, dp=2).coordinates_of(8)


def test_layers_left_over_go_to_the_middle_first():
    # 10 over 4: 2 each, 2 left over for chunks 1 and 2
    assert chunk_sizes(10, pp=4) == [2, 3, 3, 2]
    # 11 over 4: the third one goes to chunk 0, the last chunk (head and loss) gets none
    assert chunk_sizes(11, pp=4) == [3, 3, 3, 2]
    assert chunk_sizes(3, pp=2) == [2, 1]


def test_virtual_stages_are_dealt_round_robin():
    # chunks of 10 layers over 4: [2, 3, 3, 2]; stage 1 of 2 holds chunks 1 and 3
    assert stage_chunks(10, pp=2, stage=1, virtual_stages=2) == [range(2, 5), range(8, 10)]


def test_more_chunks_than_layers_are_refused():
    with pytest.raises(ValueError, match="4 pipeline chunks need at least as many layers, and there are 3"):
        chunk_sizes(3, pp=2, virtual_stages=2)


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4))
def test_each_layer_is_on_exactly_one_stage(num_layers, pp, virtual_stages):
    if pp * virtual_stages > num_layers:
        return
    held = [
        layer
        for stage in range(pp)
        for chunk in stage_chunks(num_layers, pp=pp, stage=stage, virtual_stages=virtual_stages)
        for layer in chunk
    ]
    assert sorted(held) == list(range(num_layers))
    sizes = chunk_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)
    assert max(sizes) - min(sizes) <= 1
    assert sum(stage_sizes(num_layers, pp=pp, virtual_stages=virtual_stages)) == num_layers
