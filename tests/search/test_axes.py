"""Which values an axis gets when it is derived, and that a user's list is taken as it is."""

from __future__ import annotations

from autotuner.search.axes import axes_of, derive_micro_batch_sizes, derive_virtual_stages
from tests.support.search import EVERYTHING, able, make_cluster, make_job, make_model


def test_micro_batches_are_divisors_that_thin_out_to_powers_of_two() -> None:
    # 192 = 64 x 3: up to 16 all of 1 2 3 4 6 8 12 16; of 24 32 48 64 96 192 only the powers of two.
    assert derive_micro_batch_sizes(192) == (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
    assert derive_micro_batch_sizes(7) == (1, 7)


def test_virtual_stages_divide_the_layers_unless_stages_may_be_uneven() -> None:
    assert derive_virtual_stages(12, capabilities=able(uneven_stages=False)) == (1, 2, 3, 4, 6)
    assert derive_virtual_stages(10, capabilities=EVERYTHING) == (1, 2, 4, 5)
    assert derive_virtual_stages(10, capabilities=able(max_virtual_stages=1)) == (1,)


def test_tp_stays_within_heads_devices_and_node() -> None:
    job = make_job(model=make_model(num_heads=12, head_dim=8), cluster=make_cluster(nodes=3, devices_per_node=4))
    assert axes_of(job, capabilities=EVERYTHING).tp == (1, 2, 3, 4)


def test_pp_divides_the_devices_and_has_a_layer_for_each_stage() -> None:
    job = make_job(model=make_model(num_layers=5), cluster=make_cluster(nodes=2))
    assert axes_of(job, capabilities=EVERYTHING).pp == (1, 2, 4)


def test_a_list_is_taken_sorted_and_once() -> None:
    job = make_job(space={"tp": [16, 2, 2], "recompute": ["full", "none"], "sequence_parallel": [True]})
    axes = axes_of(job, capabilities=able(sequence_parallel=False))
    assert (axes.tp, axes.recompute, axes.sequence_parallel) == ((2, 16), ("none", "full"), (True,))


def test_derived_switches_are_what_the_framework_can_do() -> None:
    axes = axes_of(make_job(), capabilities=able(zero_stages=(0, 1), recompute=("none",), sequence_parallel=False))
    assert (axes.zero_stage, axes.recompute, axes.sequence_parallel) == ((0, 1), ("none",), (False,))
    assert (axes.cp, axes.ep, axes.dp) == ((1,), (1,), ())
