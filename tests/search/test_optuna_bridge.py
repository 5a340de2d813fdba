"""How trials are told to Optuna, and how its samplers are asked."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autotuner.domain.errors import Conflict
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import Trial
from autotuner.search import optuna_bridge
from autotuner.search.optuna_bridge import MAX_ASKS, ask_chosen, ask_optuna, distributions_of, export_study, space_of
from autotuner.search.ranking import CandidateSet
from tests.support.search import GIB, make_candidates, make_cluster, make_estimate, make_job, make_trial


@pytest.fixture(scope="module")
def candidates() -> CandidateSet:
    return make_candidates(make_job(cluster=make_cluster(nodes=2), global_batch_size=48))


@pytest.fixture(scope="module")
def trials(candidates: CandidateSet) -> list[Trial]:
    configs = candidates.configs
    over = make_estimate(configs[3], memory_bytes=100.0 * GIB)
    return [
        make_trial(0, configs[0], step_seconds=2.0, peak_memory_bytes=60 * GIB),
        make_trial(1, configs[1], step_seconds=5.0),
        make_trial(2, configs[2], failure="crash"),
        make_trial(3, configs[3], failure="out_of_memory", estimate=over),
        make_trial(4, configs[4], failure="timeout"),
        make_trial(5, configs[5], state="running"),
    ]


def told(candidates: CandidateSet, trials: list[Trial]) -> list[optuna.trial.FrozenTrial]:
    return optuna_bridge._told(candidates, trials, space=space_of(candidates, trials))


def test_failures_that_say_something_are_complete_with_the_worst_value(
    candidates: CandidateSet, trials: list[Trial]
) -> None:
    frozen = told(candidates, trials)
    assert [t.state for t in frozen] == [
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.RUNNING,
    ]
    assert [t.value for t in frozen] == [2.0, 5.0, None, 5.0, 5.0, None]
    # 60 of 80 GiB leave a quarter; an estimate of 100 GiB is a quarter too much.
    assert frozen[0].constraints == {"memory": -0.25, "time": 0.0}
    assert frozen[3].constraints == {"memory": 0.25, "time": 0.0}
    assert frozen[4].constraints["time"] > 0


def test_sizes_are_integers_on_a_log2_scale_and_switches_are_categories(candidates: CandidateSet) -> None:
    distributions = distributions_of(space_of(candidates, []))
    assert distributions["log2_tp"] == optuna.distributions.IntDistribution(0, 3)
    # Divisors of 48 with a factor of three are no powers of two: 1 2 3 4 6 8 12 16 are positions 0 to 7.
    assert distributions["micro_batch_size_position"] == optuna.distributions.IntDistribution(0, 7)
    assert distributions["zero_stage"] == optuna.distributions.CategoricalDistribution((0, 1, 2, 3))
    assert "dp" not in " ".join(distributions)


def test_every_candidate_has_an_address_of_its_own(candidates: CandidateSet) -> None:
    space = space_of(candidates, [])
    addresses = space.addresses(candidates.columns)
    assert len(np.unique(addresses)) == len(candidates)
    for index in range(0, len(candidates), 97):
        assert space.address_of(space.params_of(candidates.configs[index])) == addresses[index]


def test_a_baseline_outside_the_list_widens_the_space(candidates: CandidateSet) -> None:
    baseline = make_trial(0, ParallelConfig(tp=16, micro_batch_size=48), step_seconds=1.0)
    assert distributions_of(space_of(candidates, [baseline]))["log2_tp"] == optuna.distributions.IntDistribution(0, 4)


def test_our_sampler_gives_exactly_the_chosen_candidate(candidates: CandidateSet, trials: list[Trial]) -> None:
    for index in (0, 17, len(candidates) - 1):
        assert ask_chosen(candidates, trials, choose=lambda index=index: index) == index


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_optunas_samplers_name_an_available_candidate(candidates: CandidateSet, trials: list[Trial], kind: str) -> None:
    available = np.ones(len(candidates), dtype=np.bool_)
    available[::2] = False
    asked = ask_optuna(candidates, trials, kind=kind, available=available, seed=3)
    assert asked.index is not None
    assert available[asked.index]
    assert asked == ask_optuna(candidates, trials, kind=kind, available=available, seed=3)


def test_asking_in_vain_ends(candidates: CandidateSet) -> None:
    nothing = np.zeros(len(candidates), dtype=np.bool_)
    asked = ask_optuna(candidates, [], kind="random", available=nothing, seed=0)
    assert (asked.index, asked.asks) == (None, MAX_ASKS)


def test_nothing_is_logged_and_no_level_is_changed(
    candidates: CandidateSet, trials: list[Trial], caplog: pytest.LogCaptureFixture
) -> None:
    level = optuna.logging.get_verbosity()
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.INFO):
            ask_chosen(candidates, trials, choose=lambda: 0)
    finally:
        optuna.logging.disable_propagation()
    assert caplog.records == []
    assert optuna.logging.get_verbosity() == level


def test_a_study_can_be_exported_for_other_tools(candidates: CandidateSet, trials: list[Trial], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    assert export_study(candidates, trials, storage_url=url, name="job") == 5
    study = optuna.load_study(study_name="job", storage=url)
    assert study.best_trial.user_attrs["key"] == trials[0].config.key()
    with pytest.raises(Conflict, match="already has a study 'job'"):
        export_study(candidates, trials, storage_url=url, name="job")
