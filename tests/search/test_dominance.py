"""Recompute is tried only where memory may need it, unless the user lists it."""

from __future__ import annotations

import numpy as np

from autotuner.domain.parallel import ParallelConfig
from autotuner.search.columns import columns_of
from autotuner.search.dominance import needless_recompute
from tests.support.search import GIB, make_candidates, make_cluster, make_job


def _layouts(*recomputes, tp=1):
    return [ParallelConfig(tp=tp, recompute=recompute) for recompute in recomputes]


def test_more_recompute_than_what_surely_fits_is_needless():
    layouts = [*_layouts("none", "selective", "full"), *_layouts("none", "selective", "full", tp=2)]
    # tp 1: without recompute it may not fit, with selective it surely does; tp 2: nothing is sure
    fits = np.array([0.90, 1.0, 1.0, 0.5, 0.9, 0.99])
    needless = needless_recompute(columns_of(layouts), probability_fits=fits)
    assert needless.tolist() == [False, False, True, False, False, False]


def test_where_everything_fits_only_no_recompute_is_left():
    candidates = make_candidates(make_job(cluster=make_cluster(memory_bytes=10_000 * GIB)))
    assert {config.recompute for config in candidates.configs} == {"none"}
    assert candidates.rejections["recompute_not_needed"] == 2 * len(candidates)
    assert candidates.examples[-1].rule == "recompute_not_needed"


def test_listed_recompute_values_are_all_tried():
    space = {"recompute": ["none", "full"]}
    candidates = make_candidates(make_job(cluster=make_cluster(memory_bytes=10_000 * GIB), space=space))
    assert {config.recompute for config in candidates.configs} == {"none", "full"}
