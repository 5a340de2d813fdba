"""Slices of all layouts put together are the parameter that one rank draws."""

from __future__ import annotations

import pytest
import torch

from trials.parameters import (
    BLOCK_ELEMENTS,
    ONES,
    Initial,
    Placement,
    draw_,
    replicated,
    split_columns,
)
from trials.vocab import vocabulary_placement

NORMAL = Initial(mean=0.0, deviation=0.02)


def drawn(placement: Placement, initial: Initial = NORMAL, *, seed: int = 3) -> torch.Tensor:
    part = torch.empty(placement.local_shape)
    draw_(part, placement, initial, seed=seed)
    return part


def by_rows(name: str, shape: tuple[int, ...], *ranges: tuple[int, int]) -> Placement:
    return Placement(name=name, shape=shape, dim=0, ranges=ranges, counted_rows=shape[0], copied_from=None)


def test_columns_put_together_are_the_whole() -> None:
    whole = drawn(split_columns("w", rows=6, columns=12, parts=1, index=0))
    parts = [drawn(split_columns("w", rows=6, columns=12, parts=3, index=i)) for i in range(3)]
    assert torch.equal(torch.cat(parts, dim=1), whole)


def test_rows_of_several_ranges_are_taken_in_order() -> None:
    whole = drawn(by_rows("w", (10, 4), (0, 10)))
    part = drawn(by_rows("w", (10, 4), (1, 3), (6, 7), (8, 10)))
    assert torch.equal(part, torch.cat((whole[1:3], whole[6:7], whole[8:10])))


def test_ranges_across_the_blocks_of_the_draw_are_the_wholes_rows() -> None:
    columns = BLOCK_ELEMENTS // 4  # 4 rows to a block, so 10 rows are three blocks
    whole = drawn(by_rows("w", (10, columns), (0, 10)))
    assert torch.equal(drawn(by_rows("w", (10, columns), (3, 9))), whole[3:9])
    assert torch.equal(drawn(split_columns("w", rows=10, columns=columns, parts=2, index=1)), whole[:, columns // 2 :])
    assert not torch.equal(whole[:4], whole[4:8])


def test_name_and_seed_decide_the_values() -> None:
    placement = by_rows("w", (8, 8), (0, 8))
    assert torch.equal(drawn(placement), drawn(placement))
    assert not torch.equal(drawn(placement), drawn(by_rows("v", (8, 8), (0, 8))))
    assert not torch.equal(drawn(placement), drawn(placement, seed=4))


def test_values_have_the_asked_deviation() -> None:
    values = drawn(by_rows("w", (400, 400), (0, 400)))
    # 160,000 values: mean 0 +- 0.02 / 400, deviation 0.02 +- 0.02 / sqrt(320,000); five of these is safe.
    assert abs(values.mean().item()) < 5 * 0.02 / 400
    assert values.std().item() == pytest.approx(0.02, abs=5 * 0.02 / 565)


def test_a_deviation_of_zero_fills_with_the_mean() -> None:
    assert torch.equal(drawn(replicated("w", 5, counted=True), ONES), torch.ones(5))


def test_a_table_is_padded_with_zeros_that_do_not_count() -> None:
    # ceil(7 / 3) = 3 rows a part: rows 0-2, 3-5, and 6 with two rows of padding.
    parts = [vocabulary_placement("t", vocab_size=7, hidden_size=2, parts=3, index=i, counted=True) for i in range(3)]
    assert [part.counted_elements for part in parts] == [6, 6, 2]
    whole = drawn(vocabulary_placement("t", vocab_size=7, hidden_size=2, parts=1, index=0, counted=True))
    together = torch.cat([drawn(part) for part in parts])
    assert torch.equal(together[:7], whole)
    assert torch.equal(together[7:], torch.zeros(2, 2))


def test_scattering_all_parts_gives_the_whole_back() -> None:
    whole = drawn(by_rows("w", (7, 2), (0, 7)))
    target = torch.full((7, 2), float("nan"))
    for index in range(3):
        part = vocabulary_placement("w", vocab_size=7, hidden_size=2, parts=3, index=index, counted=True)
        part.scatter_(target, drawn(part))
    assert torch.equal(target, whole)


def test_copies_do_not_count() -> None:
    assert replicated("w", 4, 3, counted=True).counted_elements == 12
    assert replicated("w", 4, 3, counted=False).counted_elements == 0
    # 5 rows of which the last 2 are another rank's copies count as 3 rows of 4.
    partly = Placement(name="w", shape=(9, 4), dim=0, ranges=((0, 3), (5, 7)), counted_rows=3, copied_from=3)
    assert partly.counted_elements == 12
