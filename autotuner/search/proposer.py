"""Which layout to measure next, given the trials so far.

A proposer holds no state beside the job and its candidates: rebuilt from the same trials it proposes the same layout.
Order: the user's baseline (or the naive layout), a few of the best by estimate, then the job's strategy.  When to stop
for time or budget is decided in `stopping.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from autotuner.domain.job import Strategy, TuningJob
from autotuner.domain.trial import Trial, TrialSource
from autotuner.domain.units import format_bytes
from autotuner.search.columns import BoolArray
from autotuner.search.optuna_bridge import ask_chosen, ask_optuna
from autotuner.search.proposals import Exhausted, Proposal, estimate_sentence, model_sentence
from autotuner.search.ranking import CandidateSet
from autotuner.search.stopping import little_to_gain
from autotuner.search.surrogate import learned_ranking, score_candidates

# How many trials open a search before its strategy takes over. TPE needs a start that is worth modelling.
_OPENING_BY_ESTIMATE: Final[dict[Strategy, int]] = {"default": 3, "tpe": 5}
_OPENING_AT_RANDOM: Final = 3
# The opening prefers another tp x pp over a nearly equal layout, but not at any price.
_DIVERSITY_LIMIT: Final = 1.25


class Proposer:
    """Proposes layouts of one job; never one twice, never one that is not feasible."""

    def __init__(self, job: TuningJob, *, candidates: CandidateSet) -> None:
        self._job = job
        self._candidates = candidates
        self._strategies: dict[Strategy, Callable[[Sequence[Trial], BoolArray], Proposal | Exhausted]] = {
            "default": self._by_residual_model,
            "gp": self._by_plain_model,
            "tpe": self._by_tpe,
            "random": self._by_chance,
            "estimate-order": self._by_estimate,
            "grid": self._by_grid,
        }

    def remaining(self, trials: Sequence[Trial]) -> int:
        """Candidates that no trial has been made for."""
        return int(np.count_nonzero(self._available(trials)))

    def propose(self, trials: Sequence[Trial]) -> Proposal | Exhausted:
        """The next layout. Trials that have not ended count as tried."""
        baseline = self._baseline(trials)
        if baseline is not None:
            return baseline
        available = self._available(trials)
        left = int(np.count_nonzero(available))
        if left == 0:
            return Exhausted(reason=f"all {len(self._candidates)} feasible layouts were tried")
        budget_left = self._job.budget.max_trials - sum(trial.state != "cancelled" for trial in trials)
        if budget_left >= left and self._job.strategy != "grid":
            lead = f"the budget covers all {left} layouts that are left, so they are taken in order of the estimate"
            return self._estimated(self._first(available), lead=lead)
        return self._strategies[self._job.strategy](trials, available)

    def _available(self, trials: Sequence[Trial]) -> BoolArray:
        """Flags of the candidates without a trial (shape: [candidates])."""
        available = np.ones(len(self._candidates), dtype=np.bool_)
        for trial in trials:
            index = self._candidates.keys.get(trial.config.key())
            if index is not None:
                available[index] = False
        return available

    def _baseline(self, trials: Sequence[Trial]) -> Proposal | None:
        if any(trial.source == "baseline" for trial in trials) or not len(self._candidates):
            return None
        given = self._job.baseline
        config = self._candidates.configs[self._candidates.naive_index()] if given is None else given
        if config.key() in {trial.config.key() for trial in trials}:
            return None
        what = "your baseline" if given is not None else "no baseline was given, so the naive layout is"
        estimate = self._candidates.estimate_of(config)
        return Proposal(
            config=config,
            source="baseline",
            reason=f"{what} {config.key()}, measured first because every gain is compared with it"
            f" ({format_bytes(estimate.memory_bytes)}, {estimate.probability_fits:.0%} likely to fit by estimate)",
            estimate=estimate,
        )

    def _by_residual_model(self, trials: Sequence[Trial], available: BoolArray) -> Proposal | Exhausted:
        opening = self._opening(trials, available)
        if opening is not None:
            return opening
        return self._by_model(trials, available, use_estimates=True)

    def _by_plain_model(self, trials: Sequence[Trial], available: BoolArray) -> Proposal | Exhausted:
        if sum(trial.source == "sampler" for trial in trials) < _OPENING_AT_RANDOM:
            return self._by_chance(trials, available)
        return self._by_model(trials, available, use_estimates=False)

    def _by_model(self, trials: Sequence[Trial], available: BoolArray, *, use_estimates: bool) -> Proposal | Exhausted:
        scores = score_candidates(
            self._candidates, trials, use_estimates=use_estimates, seed=self._job.seed + len(trials)
        )
        if scores is None:
            lead = "nothing was measured so far to learn from, and of what is likely to fit this is the fastest"
            return self._estimated(self._first_learned(trials, available), lead=lead)
        best = int(np.argmax(np.where(available, scores.score, -1.0)))
        improvement = float(scores.score[best])
        stop = little_to_gain(trials, expected_improvement=improvement) if scores.uses_estimates else None
        if stop is not None:
            return Exhausted(reason=stop.sentence)
        index = ask_chosen(self._candidates, trials, choose=lambda: best)
        return Proposal(
            config=self._candidates.configs[index],
            source="sampler",
            reason=model_sentence(self._candidates, index, scores=scores),
            estimate=self._candidates.estimate_at(index),
            expected_improvement=improvement,
        )

    def _by_tpe(self, trials: Sequence[Trial], available: BoolArray) -> Proposal | Exhausted:
        return self._opening(trials, available) or self._by_optuna(trials, available, kind="tpe")

    def _by_chance(self, trials: Sequence[Trial], available: BoolArray) -> Proposal:
        return self._by_optuna(trials, available, kind="random")

    def _by_optuna(self, trials: Sequence[Trial], available: BoolArray, *, kind: Literal["tpe", "random"]) -> Proposal:
        seed = self._job.seed + len(trials)
        asked = ask_optuna(self._candidates, trials, kind=kind, available=available, seed=seed)
        name = {"tpe": "Optuna's TPE", "random": "Optuna's random sampler"}[kind]
        if asked.index is None:
            lead = (
                f"{name} named no untried feasible layout in {asked.asks} asks, so the best left by estimate is taken"
            )
            return self._estimated(self._first(available), lead=lead)
        lead = f"named by {name} (ask {asked.asks})"
        return self._estimated(asked.index, lead=lead, source="sampler")

    def _by_estimate(self, _trials: Sequence[Trial], available: BoolArray) -> Proposal:
        return self._estimated(self._first(available), lead="next in order of the estimate")

    def _by_grid(self, _trials: Sequence[Trial], available: BoolArray) -> Proposal:
        lead = "next in order of the enumeration"
        return self._estimated(int(np.argmax(available)), lead=lead, source="sampler")

    def _opening(self, trials: Sequence[Trial], available: BoolArray) -> Proposal | None:
        """One of the first trials by estimate, with a tp x pp not tried before where that costs little."""
        done = sum(trial.source == "estimate" for trial in trials)
        wanted = _OPENING_BY_ESTIMATE[self._job.strategy]
        if done >= wanted:
            return None
        first = self._first_learned(trials, available)
        index = self._unlike(
            trials, available, limit_seconds=float(self._candidates.step_seconds[first]) * _DIVERSITY_LIMIT
        )
        rank = "best" if done == 0 else "among the best"
        lead = f"{rank} by estimate of the layouts left (opening {done + 1} of {wanted})"
        return self._estimated(first if index is None else index, lead=lead)

    def _unlike(self, trials: Sequence[Trial], available: BoolArray, *, limit_seconds: float) -> int | None:
        tried = {(trial.config.tp, trial.config.pp) for trial in trials if trial.source == "estimate"}
        for index in learned_ranking(self._candidates, trials):
            if self._candidates.step_seconds[index] > limit_seconds:
                continue
            config = self._candidates.configs[index]
            if available[index] and (config.tp, config.pp) not in tried:
                return int(index)
        return None

    def _first(self, available: BoolArray) -> int:
        """The best available candidate by estimate."""
        ranking = self._candidates.ranking
        return int(ranking[np.argmax(available[ranking])])

    def _first_learned(self, trials: Sequence[Trial], available: BoolArray) -> int:
        """The same with what the trials so far say about memory."""
        ranking = learned_ranking(self._candidates, trials)
        return int(ranking[np.argmax(available[ranking])])

    def _estimated(self, index: int, *, lead: str, source: TrialSource = "estimate") -> Proposal:
        return Proposal(
            config=self._candidates.configs[index],
            source=source,
            reason=estimate_sentence(self._candidates, index, lead=lead),
            estimate=self._candidates.estimate_at(index),
        )
