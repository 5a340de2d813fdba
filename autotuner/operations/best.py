"""The answer of a job, worked out from its trials: the winner, what it is compared to and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autotuner.domain.errors import NotReady
from autotuner.domain.job import Job
from autotuner.domain.measurement import Measurement
from autotuner.domain.result import BestResult, Compared, TrialCounts
from autotuner.domain.trial import Trial
from autotuner.search.stopping import leaders


def best_result(job: Job, trials: Sequence[Trial]) -> BestResult:
    """The winner among the measured trials. Raises NotReady when nothing has been measured yet."""
    ranked = leaders(trials, count=2, objective=job.spec.objective)
    if not ranked:
        failed = sum(t.state == "failed" for t in trials)
        raise NotReady(f"job {job.id} has no measured layout yet ({len(trials)} trials, {failed} failed)")
    winner, measured = ranked[0], _measured(ranked[0])
    baseline = next((t for t in trials if t.source == "baseline" and t.measurement), None)
    relation = "your baseline" if job.spec.baseline else "the naive layout"
    runner_up = ranked[1] if len(ranked) > 1 else None
    return BestResult(
        job_id=job.id,
        trial_id=winner.id,
        config=winner.config,
        tokens_per_second=measured.tokens_per_second,
        tokens_per_second_per_device=measured.tokens_per_second_per_device,
        step_seconds=measured.step_seconds,
        mfu=measured.mfu,
        peak_memory_bytes=measured.peak_memory_bytes,
        baseline=None if baseline is None else _compared(baseline, relation=relation),
        speedup_over_baseline=(
            None if baseline is None else measured.tokens_per_second / _measured(baseline).tokens_per_second
        ),
        runner_up=None if runner_up is None else _compared(runner_up, relation="the runner-up"),
        certainty=_certainty(measured, None if runner_up is None else _measured(runner_up)),
        stopped_because=job.stopped_because,
        estimate=winner.estimate,
        trials=_counts(trials),
    )


def _measured(trial: Trial) -> Measurement:
    if trial.measurement is None:
        raise ValueError(f"trial {trial.id} is among the leaders without a measurement")
    return trial.measurement


def _compared(trial: Trial, *, relation: str) -> Compared:
    measured = _measured(trial)
    return Compared(
        relation=relation,
        trial_id=trial.id,
        config=trial.config,
        tokens_per_second=measured.tokens_per_second,
        step_seconds=measured.step_seconds,
        peak_memory_bytes=measured.peak_memory_bytes,
    )


def _certainty(winner: Measurement, runner_up: Measurement | None) -> str:
    """One sentence: how often it was measured, how far it spreads, and whether the runner-up is really slower."""
    spread = (winner.step_seconds.p90 - winner.step_seconds.p10) / (2 * winner.step_seconds.median)
    base = (
        f"{winner.step_seconds.count} steps in {winner.runs} run{'s' if winner.runs > 1 else ''}, spread ±{spread:.1%}"
    )
    if runner_up is None:
        return f"{base}; no other layout was measured"
    lead = runner_up.step_seconds.median / winner.step_seconds.median - 1
    if winner.step_seconds.p90 < runner_up.step_seconds.p10:
        return f"{base}; clearly ahead of the runner-up (by {lead:.1%})"
    return f"{base}; the runner-up ({lead:+.1%} step time) lies within the spread: treat the two as equal"


def _counts(trials: Sequence[Trial]) -> TrialCounts:
    failed = Counter(str(t.failure.kind) for t in trials if t.state == "failed" and t.failure is not None)
    return TrialCounts(succeeded=sum(t.state == "succeeded" for t in trials), failed=dict(failed))
