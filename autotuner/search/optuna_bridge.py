"""Optuna at work for us: the only file that imports it.

A study is rebuilt in memory from the trials for each proposal and thrown away; our tables are the truth.  Decides how
a trial is told to Optuna and how its samplers are asked; what a candidate is worth comes from `surrogate.py`.

Out-of-memory and timeouts are told as COMPLETE with the worst value so far and a constraint above 0: samplers ignore
failed trials and would walk into the same wall again.  Crashes say nothing about a layout and are told as FAIL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotuner.domain.errors import Conflict
from autotuner.domain.trial import Trial
from autotuner.search.columns import BoolArray
from autotuner.search.observations import MEMORY_FAILURES, PENDING_STATES, SLOW_FAILURES, worst_seconds
from autotuner.search.parameter_space import ParameterSpace
from autotuner.search.ranking import CandidateSet
from autotuner.search.stopping import measured_step_seconds

MAX_ASKS: Final = 200
# Fewer than Optuna's ten: the first trials were chosen by estimate, so they are no random start to be added to.
TPE_STARTUP_TRIALS: Final = 5
_NOISY_LOGGERS: Final = ("optuna.storages._in_memory", "optuna.storages._rdb.storage", "optuna.study.study")


class CandidateSampler(BaseSampler):
    """Samples a whole layout from the candidate list; `choose` names the index of the one to take."""

    def __init__(self, candidates: CandidateSet, *, space: ParameterSpace, choose: Callable[[], int]) -> None:
        self._candidates = candidates
        self._space = space
        self._choose = choose

    def infer_relative_search_space(self, _study: Study, _trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters: a layout is chosen as a whole."""
        return distributions_of(self._space)

    def sample_relative(
        self, _study: Study, _trial: FrozenTrial, _search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the chosen candidate."""
        return self._space.params_of(self._candidates.configs[self._choose()])

    def sample_independent(
        self, _study: Study, _trial: FrozenTrial, param_name: str, _param_distribution: BaseDistribution
    ) -> Any:
        """Never reached by an ask for this space. Raises ValueError: a foreign parameter has no meaning here."""
        raise ValueError(f"{param_name} is no parameter of a layout")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A candidate's index, None when none came; `asks` counts how often Optuna was asked."""

    index: int | None
    asks: int


def ask_chosen(candidates: CandidateSet, trials: Sequence[Trial], *, choose: Callable[[], int]) -> int:
    """Let our own sampler choose from the list, as a trial of the study."""
    space = space_of(candidates, trials)
    sampler = CandidateSampler(candidates, space=space, choose=choose)
    asked = _study(candidates, trials, space=space, sampler=sampler).ask(distributions_of(space))
    matches = np.flatnonzero(space.addresses(candidates.columns) == space.address_of(asked.params))
    return int(matches[0])


def ask_optuna(
    candidates: CandidateSet,
    trials: Sequence[Trial],
    *,
    kind: Literal["tpe", "random"],
    available: BoolArray,
    seed: int,
) -> Asked:
    """Ask one of Optuna's samplers until it names an available candidate, at most MAX_ASKS times.

    What it names in vain stays RUNNING in this scratch study, which TPE's constant liar reads as "do not ask again".
    """
    space = space_of(candidates, trials)
    sampler: BaseSampler = RandomSampler(seed=seed)
    if kind == "tpe":
        sampler = TPESampler(seed=seed, n_startup_trials=TPE_STARTUP_TRIALS, multivariate=True, constant_liar=True)
    study = _study(candidates, trials, space=space, sampler=sampler)
    distributions, addresses = distributions_of(space), space.addresses(candidates.columns)
    for asks in range(1, MAX_ASKS + 1):
        address = space.address_of(study.ask(distributions).params)
        if address is None:
            continue
        matches = np.flatnonzero((addresses == address) & available)
        if len(matches):
            return Asked(index=int(matches[0]), asks=asks)
    return Asked(index=None, asks=MAX_ASKS)


def export_study(candidates: CandidateSet, trials: Sequence[Trial], *, storage_url: str, name: str) -> int:
    """Write the ended trials as a study for other Optuna tools; returns how many. Raises Conflict if `name` exists."""
    with _quiet():
        try:
            study = optuna.create_study(storage=storage_url, study_name=name, direction="minimize")
        except optuna.exceptions.DuplicatedStudyError as error:
            raise Conflict(f"the storage already has a study {name!r}; choose another name") from error
    ended = [trial for trial in trials if trial.state not in PENDING_STATES]
    for frozen in _told(candidates, ended, space=space_of(candidates, trials)):
        study.add_trial(frozen)
    return len(ended)


def space_of(candidates: CandidateSet, trials: Sequence[Trial]) -> ParameterSpace:
    """The parameters of the candidates and of every trial (a baseline may lie outside the list)."""
    return ParameterSpace.of(candidates.columns, others=[trial.config for trial in trials])


def distributions_of(space: ParameterSpace) -> dict[str, BaseDistribution]:
    """Optuna's view of the space."""
    return {
        p.name: IntDistribution(p.codes[0], p.codes[-1]) if p.ordered else CategoricalDistribution(p.codes)
        for p in space.parameters
    }


def _study(candidates: CandidateSet, trials: Sequence[Trial], *, space: ParameterSpace, sampler: BaseSampler) -> Study:
    storage, name = optuna.storages.InMemoryStorage(), "candidates"
    with _quiet():
        storage.create_new_study([StudyDirection.MINIMIZE], name)
    study = Study(name, storage, sampler=sampler)
    for frozen in _told(candidates, trials, space=space):
        study.add_trial(frozen)
    return study


def _told(candidates: CandidateSet, trials: Sequence[Trial], *, space: ParameterSpace) -> list[FrozenTrial]:
    """Our trials in Optuna's words, in order of their numbers."""
    measured_worst = worst_seconds(trials)
    worst = float(candidates.step_seconds.max()) if measured_worst is None else measured_worst
    distributions = distributions_of(space)
    usable_bytes = candidates.job.cluster.device.memory_bytes
    told = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        state, value, constraints = _outcome(trial, worst=worst, usable_bytes=usable_bytes)
        frozen = optuna.trial.create_trial(
            state=state,
            value=value,
            params=space.params_of(trial.config),
            distributions=distributions,
            user_attrs={
                "key": trial.config.key(),
                "trial": trial.id,
                "measured": measured_step_seconds(trial) is not None,
            },
            constraints=constraints,
        )
        told.append(frozen)
    return told


def _outcome(
    trial: Trial, *, worst: float, usable_bytes: int
) -> tuple[TrialState, float | None, dict[str, float] | None]:
    """State, step seconds and constraints; a constraint above 0 marks a value that stands in for a measurement."""
    if trial.state in PENDING_STATES:
        return TrialState.RUNNING, None, None
    seconds = measured_step_seconds(trial)
    if seconds is not None and trial.measurement is not None:
        filled = trial.measurement.peak_memory_bytes / usable_bytes - 1.0
        return TrialState.COMPLETE, seconds, {"memory": min(filled, 0.0), "time": 0.0}
    kind = trial.failure.kind if trial.failure is not None else "crash"
    if kind in MEMORY_FAILURES:
        estimated = 0.0 if trial.estimate is None else trial.estimate.memory_bytes / usable_bytes - 1.0
        return TrialState.COMPLETE, worst, {"memory": max(estimated, 0.01), "time": 0.0}
    if kind in SLOW_FAILURES:
        return TrialState.COMPLETE, worst, {"memory": 0.0, "time": 1.0}
    return TrialState.FAIL, None, None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps "a new study was created" out of the log: by a filter for that moment, as a level would stay set."""

    def important(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    for logger in loggers:
        logger.addFilter(important)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(important)
