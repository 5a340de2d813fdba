"""The candidate list: the memory rule, order, look-up, the naive layout, and the real cost model behind it."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.domain.errors import InvalidInput, NoFeasibleLayout
from autotuner.domain.parallel import ParallelConfig
from autotuner.search.enumerate import enumerate_layouts
from autotuner.search.ranking import CandidateSet, ranked
from tests.support.search import EVERYTHING, GIB, able, make_candidates, make_cluster, make_job, make_model


def test_layouts_that_surely_do_not_fit_are_counted_under_memory() -> None:
    job = make_job(cluster=make_cluster(memory_bytes=30 * GIB))
    everything = enumerate_layouts(job, capabilities=EVERYTHING)
    candidates = make_candidates(job)
    assert candidates.rejections["memory"] == len(everything.candidates) - len(candidates) > 0
    assert candidates.probability_fits.min() >= job.space.min_probability_fits
    example = candidates.examples[-1]
    assert example.rule == "memory"
    assert "30.00 GiB" in example.message


def test_nothing_that_fits_is_refused_with_the_least_that_would() -> None:
    # The smallest made-up layout: tp 8, dp 1, micro-batch 1, full recompute and sequence parallel needs
    # 160 / 8 + 6 x 0.2 / 8 x 0.7 + 2 = 22.1 GiB.
    candidates = make_candidates(make_job(cluster=make_cluster(memory_bytes=GIB)))
    with pytest.raises(NoFeasibleLayout, match=r"needs 22\.1\d GiB by estimate") as caught:
        candidates.require_feasible()
    assert caught.value.histogram["memory"] > 0


def test_order_weighs_time_by_the_probability_of_fitting() -> None:
    # 1.0 / 0.5 = 2.0, 1.5 / 1.0 = 1.5, 1.8 / 1.0 = 1.8.
    order = ranked(np.array([1.0, 1.5, 1.8]), probability_fits=np.array([0.5, 1.0, 1.0]))
    assert order.tolist() == [1, 2, 0]


def test_a_candidate_is_found_by_its_key_with_its_own_estimate() -> None:
    candidates = make_candidates(make_job(cluster=make_cluster(memory_bytes=30 * GIB)))
    for index in range(0, len(candidates), 50):
        config = candidates.configs[index]
        assert candidates.keys[config.key()] == index
        assert candidates.estimate_at(index).config == config
        assert candidates.estimate_at(index).step_seconds == candidates.step_seconds[index]
    assert sorted(candidates.order()) == list(range(len(candidates)))


def test_a_layout_outside_the_list_can_be_estimated() -> None:
    candidates = make_candidates(make_job(space={"tp": [8]}))
    config = ParallelConfig(tp=4, dp=2)
    assert config.key() not in candidates.keys
    assert candidates.estimate_of(config).config == config


def test_the_naive_layout_fills_a_node_with_tp_and_switches_nothing_on() -> None:
    candidates = make_candidates(make_job(cluster=make_cluster(nodes=2)))
    assert candidates.configs[candidates.naive_index()].key() == "tp8-pp1-dp2-mb1"


def test_the_naive_layout_is_capped_by_the_heads() -> None:
    candidates = make_candidates(make_job(model=make_model(num_heads=4, head_dim=16)))
    assert candidates.configs[candidates.naive_index()].key() == "tp4-pp1-dp2-mb1"


def test_the_naive_layout_takes_the_fewest_stages_that_fit() -> None:
    # tp 8 x pp 1 needs 160 / 8 + 6 / 8 + 2 = 22.75 GiB and pp 2 needs 12.75 GiB.
    candidates = make_candidates(make_job(cluster=make_cluster(nodes=4, memory_bytes=18 * GIB)))
    assert candidates.configs[candidates.naive_index()].key() == "tp8-pp2-dp2-mb1"


def test_a_pinned_space_still_has_a_naive_layout() -> None:
    space = {"recompute": ["full"], "zero_stage": [1], "tp": [2], "micro_batch_size": [4, 8]}
    candidates = make_candidates(make_job(space=space))
    assert candidates.configs[candidates.naive_index()].key() == "tp2-pp1-dp4-mb4-z1-rc-full"


def test_the_cost_model_scores_the_list() -> None:
    job = make_job(budget={"max_trials": 5})
    candidates = CandidateSet.build(job, capabilities=able(max_virtual_stages=1))
    candidates.require_feasible()
    assert np.all(np.isfinite(candidates.step_seconds))
    assert np.all(candidates.step_seconds > 0)
    assert candidates.estimate_at(candidates.order()[0]).fits


def test_a_space_without_a_legal_layout_is_scored_as_empty() -> None:
    job = make_job(space={"tp": [3]})
    candidates = CandidateSet.build(job, capabilities=EVERYTHING)
    assert len(candidates) == 0
    with pytest.raises(NoFeasibleLayout):
        candidates.require_feasible()
    with pytest.raises(ValueError, match="no candidate"):
        candidates.naive_index()


def test_a_baseline_that_cannot_run_is_refused() -> None:
    job = make_job(baseline=ParallelConfig(tp=2, dp=2))
    with pytest.raises(InvalidInput, match="use dp 4") as caught:
        CandidateSet.build(job, capabilities=EVERYTHING)
    assert caught.value.field == "baseline"
