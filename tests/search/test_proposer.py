"""What is proposed, in which order, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.domain.job import Strategy, TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import Trial
from autotuner.search.proposals import Exhausted, Proposal
from autotuner.search.proposer import Proposer
from autotuner.search.ranking import CandidateSet
from tests.support.search import (
    GIB,
    fake_memory_bytes,
    fake_seconds,
    make_candidates,
    make_cluster,
    make_job,
    make_trial,
)

STRATEGIES = get_args(Strategy)
Measure = Callable[[int, Proposal], Trial]


def job_of(strategy: str, *, seed: int = 0, max_trials: int = 60) -> TuningJob:
    return make_job(
        strategy=strategy,
        seed=seed,
        cluster=make_cluster(nodes=2, memory_bytes=40 * GIB),
        budget={"max_trials": max_trials},
        space={"virtual_stages": [1, 2], "zero_stage": [0, 1], "micro_batch_size": [1, 2, 4, 8]},
    )


@pytest.fixture(scope="module")
def candidates() -> CandidateSet:
    return make_candidates(job_of("default"))


def true_seconds(config: ParallelConfig, *, job: TuningJob) -> float:
    """The made-up estimate, wrong by up to a quarter in a way that is smooth over the axes."""
    wrong = 0.14 * np.sin(1.3 * np.log2(config.tp) + 0.7 * np.log2(config.pp))
    wrong += 0.10 * np.cos(1.1 * np.log2(config.micro_batch_size)) - 0.05 * (config.recompute == "selective")
    return fake_seconds(config, job=job) * float(np.exp(wrong))


def measure(number: int, proposal: Proposal, *, job: TuningJob) -> Trial:
    peak = fake_memory_bytes(proposal.config) * 1.05
    if peak > job.cluster.device.memory_bytes:
        return trial_of(number, proposal, failure="out_of_memory")
    return trial_of(number, proposal, step_seconds=true_seconds(proposal.config, job=job), peak_memory_bytes=int(peak))


def trial_of(number: int, proposal: Proposal, **outcome: object) -> Trial:
    return make_trial(number, proposal.config, source=proposal.source, estimate=proposal.estimate, **outcome)


def search(job: TuningJob, candidates: CandidateSet, *, count: int, rebuild: bool = False) -> list[Trial]:
    proposer, trials = Proposer(job, candidates=candidates), []
    for number in range(count):
        proposal = (Proposer(job, candidates=candidates) if rebuild else proposer).propose(trials)
        if isinstance(proposal, Exhausted):
            break
        assert proposal.reason
        trials.append(measure(number, proposal, job=job))
    return trials


def keys(trials: list[Trial]) -> list[str]:
    return [trial.config.key() for trial in trials]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_naive_layout_is_measured_first(candidates: CandidateSet, strategy: str) -> None:
    first = search(job_of(strategy), candidates, count=1)[0]
    assert (first.config.key(), first.source) == ("tp8-pp1-dp2-mb1", "baseline")


def test_a_users_baseline_comes_first_even_from_outside_the_space(candidates: CandidateSet) -> None:
    baseline = ParallelConfig(tp=4, dp=4, micro_batch_size=16)
    job = job_of("default").model_copy(update={"baseline": baseline})
    trials = search(job, candidates, count=8)
    assert baseline.key() not in candidates.keys
    assert (trials[0].config, trials[0].source) == (baseline, "baseline")
    assert [trial.source for trial in trials[1:5]] == ["estimate", "estimate", "estimate", "sampler"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_layout_is_proposed_twice_or_from_outside_the_list(candidates: CandidateSet, strategy: str) -> None:
    trials = search(job_of(strategy), candidates, count=20)
    assert len(set(keys(trials))) == len(trials) >= 10
    assert set(keys(trials)) <= set(candidates.keys)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rebuilt_proposer_goes_on_in_the_same_way(candidates: CandidateSet, strategy: str) -> None:
    job = job_of(strategy, seed=7)
    assert keys(search(job, candidates, count=10)) == keys(search(job, candidates, count=10, rebuild=True))


@pytest.mark.parametrize("strategy", ["random", "tpe", "gp"])
def test_another_seed_takes_another_way(candidates: CandidateSet, strategy: str) -> None:
    one, other = (search(job_of(strategy, seed=seed), candidates, count=9) for seed in (1, 2))
    assert keys(one) != keys(other)


OUTCOMES = st.sampled_from(["ok", "nan", "inf", "zero", "out_of_memory", "timeout", "crash", "queued", "running"])


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["default", "gp", "tpe"]), st.lists(OUTCOMES, min_size=8, max_size=12))
def test_whatever_trials_come_to_the_next_one_is_new_and_feasible(strategy: str, outcomes: list[str]) -> None:
    job = job_of(strategy)
    listed = make_candidates(job)
    proposer, trials = Proposer(job, candidates=listed), []
    for number, outcome in enumerate(outcomes):
        proposal = proposer.propose(trials)
        assert isinstance(proposal, Proposal)
        assert proposal.config.key() in listed.keys
        assert proposal.config.key() not in keys(trials)
        trials.append(ended(number, proposal, outcome, job=job))
    assert proposer.remaining(trials) == len(listed) - len(outcomes)


def ended(number: int, proposal: Proposal, outcome: str, *, job: TuningJob) -> Trial:
    if outcome in ("queued", "running"):
        return trial_of(number, proposal, state=outcome)
    if outcome in ("nan", "inf", "zero"):
        return trial_of(number, proposal, step_seconds={"nan": float("nan"), "inf": float("inf"), "zero": 0.0}[outcome])
    if outcome == "ok":
        return trial_of(number, proposal, step_seconds=true_seconds(proposal.config, job=job))
    return trial_of(number, proposal, failure=outcome)


def test_the_opening_takes_different_shapes_of_the_best_by_estimate() -> None:
    # With memory for everything, what the baseline says about memory changes nothing.
    job = job_of("default").model_copy(update={"cluster": make_cluster(nodes=2, memory_bytes=400 * GIB)})
    roomy = make_candidates(job)
    opening = search(job, roomy, count=4)[1:]
    assert opening[0].config == roomy.configs[roomy.order()[0]]
    assert len({(trial.config.tp, trial.config.pp) for trial in opening}) == 3


def test_a_budget_for_everything_is_spent_in_order_of_the_estimate(candidates: CandidateSet) -> None:
    job = job_of("tpe", max_trials=len(candidates))
    trials = search(job, candidates, count=6)
    naive = trials[0].config.key()
    expected = [candidates.configs[i].key() for i in candidates.order()]
    expected.remove(naive)
    assert keys(trials[1:]) == expected[:5]


def test_estimate_order_and_grid_follow_their_orders(candidates: CandidateSet) -> None:
    naive = candidates.configs[candidates.naive_index()].key()
    by_estimate = [key for i in candidates.order() if (key := candidates.configs[i].key()) != naive]
    by_place = [key for config in candidates.configs if (key := config.key()) != naive]
    assert keys(search(job_of("estimate-order"), candidates, count=6))[1:] == by_estimate[:5]
    assert keys(search(job_of("grid"), candidates, count=6))[1:] == by_place[:5]


def test_a_small_space_is_measured_whole_and_then_exhausted() -> None:
    job = make_job(space={"tp": [8], "pp": [1], "micro_batch_size": [1, 2], "recompute": ["none"]})
    listed = make_candidates(job)
    trials = search(job, listed, count=50)
    # Micro-batch 1 and 2, with and without sequence parallel, at dp 1 no ZeRO: four layouts.
    assert sorted(keys(trials)) == sorted(listed.keys)
    assert len(trials) == 4
    last = Proposer(job, candidates=listed).propose(trials)
    assert last == Exhausted(reason="all 4 feasible layouts were tried")


def test_out_of_memory_everywhere_moves_towards_smaller_layouts(candidates: CandidateSet) -> None:
    proposer, trials = Proposer(job_of("default"), candidates=candidates), []
    for number in range(8):
        proposal = proposer.propose(trials)
        assert isinstance(proposal, Proposal)
        trials.append(trial_of(number, proposal, failure="out_of_memory"))
    needed = [trial.estimate.memory_bytes for trial in trials if trial.estimate]
    assert min(needed[4:]) < min(needed[:4])


def test_the_default_needs_fewer_trials_than_chance(candidates: CandidateSet) -> None:
    job = job_of("default")
    fits = [c for c in candidates.configs if fake_memory_bytes(c) * 1.05 <= job.cluster.device.memory_bytes]
    target = min(true_seconds(config, job=job) for config in fits) * 1.02

    def trials_needed(strategy: str, seed: int) -> int:
        trials = search(job_of(strategy, seed=seed), candidates, count=25)
        hits = [t.number for t in trials if t.measurement and t.measurement.step_seconds.median <= target]
        return hits[0] + 1 if hits else 26

    default = [trials_needed("default", seed) for seed in (0, 1)]
    chance = [trials_needed("random", seed) for seed in range(4)]
    assert max(default) <= 20
    assert float(np.mean(default)) < float(np.mean(chance))


def test_a_search_with_nothing_to_gain_ends_itself(candidates: CandidateSet) -> None:
    # Measured exactly as estimated: after the best by estimate nothing better can come.
    job, trials = job_of("default"), []
    proposer = Proposer(job, candidates=candidates)
    for number in range(60):
        proposal = proposer.propose(trials)
        if isinstance(proposal, Exhausted):
            break
        trials.append(trial_of(number, proposal, step_seconds=fake_seconds(proposal.config, job=job)))
    assert isinstance(proposal, Exhausted)
    assert proposal.reason.startswith("no other layout promises more than")
    assert len(trials) >= 8
