"""What the trials of a job say about time and memory, sorted out once for every model that learns from them.

Decides what each kind of failure teaches: running out of memory informs memory only, a timeout says "slow", a crash
says nothing about the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autotuner.domain.measurement import FailureKind
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.trial import Trial
from autotuner.search.columns import FloatArray
from autotuner.search.ranking import CandidateSet
from autotuner.search.stopping import is_positive, measured_step_seconds

MEMORY_FAILURES: Final[frozenset[FailureKind]] = frozenset({"out_of_memory", "host_out_of_memory"})
SLOW_FAILURES: Final[frozenset[FailureKind]] = frozenset({"timeout", "hang"})
PENDING_STATES: Final = frozenset({"queued", "launching", "running"})
# The cost of a fit grows with the cube of the points: 150 take some tenths of a second.
MAX_POINTS: Final = 150


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Layouts with what was seen of them. Arrays of one group are aligned with its `*configs`.

    `seconds` beside `configs`; `peak_bytes` beside `peak_configs`; `full_configs` ran out of memory, so that their
    peak is only known to be above a device's; `pending` were chosen and have not ended.
    """

    configs: tuple[ParallelConfig, ...]
    seconds: FloatArray
    estimated_seconds: FloatArray
    peak_configs: tuple[ParallelConfig, ...]
    peak_bytes: FloatArray
    estimated_peak_bytes: FloatArray
    full_configs: tuple[ParallelConfig, ...]
    estimated_full_bytes: FloatArray
    pending: tuple[ParallelConfig, ...]


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """One trial's layout with what was seen and what had been estimated."""

    config: ParallelConfig
    value: float
    estimated: float


def observe(candidates: CandidateSet, trials: Sequence[Trial]) -> Observations:
    """Sort the trials out; unusable numbers (NaN, infinity, zero) are left out."""
    times = _limited(_times(candidates, trials))
    peaks: list[_Seen] = []
    full: list[_Seen] = []
    for trial in trials:
        estimated = _estimated(candidates, trial)[1]
        if measured_step_seconds(trial) is not None and trial.measurement is not None:
            peaks.append(_Seen(config=trial.config, value=trial.measurement.peak_memory_bytes, estimated=estimated))
        elif trial.state == "failed" and trial.failure is not None and trial.failure.kind in MEMORY_FAILURES:
            full.append(_Seen(config=trial.config, value=1.0, estimated=estimated))
    peaks, full = _limited([seen for seen in peaks if is_positive(seen.value)]), _limited(full)
    return Observations(
        configs=tuple(seen.config for seen in times),
        seconds=np.array([seen.value for seen in times]),
        estimated_seconds=np.array([seen.estimated for seen in times]),
        peak_configs=tuple(seen.config for seen in peaks),
        peak_bytes=np.array([seen.value for seen in peaks]),
        estimated_peak_bytes=np.array([seen.estimated for seen in peaks]),
        full_configs=tuple(seen.config for seen in full),
        estimated_full_bytes=np.array([seen.estimated for seen in full]),
        pending=tuple(trial.config for trial in trials if trial.state in PENDING_STATES),
    )


def worst_seconds(trials: Sequence[Trial]) -> float | None:
    """The slowest usable measurement, which stands in for trials that never got one."""
    return max((seconds for t in trials if (seconds := measured_step_seconds(t)) is not None), default=None)


def _times(candidates: CandidateSet, trials: Sequence[Trial]) -> list[_Seen]:
    worst, seen = worst_seconds(trials), []
    for trial in trials:
        estimated = _estimated(candidates, trial)[0]
        seconds = measured_step_seconds(trial)
        if seconds is not None:
            seen.append(_Seen(config=trial.config, value=seconds, estimated=estimated))
        elif worst is not None and trial.failure is not None and trial.failure.kind in SLOW_FAILURES:
            # It took at least this long; how long nobody knows.
            seen.append(_Seen(config=trial.config, value=max(worst, estimated), estimated=estimated))
    return seen


def _estimated(candidates: CandidateSet, trial: Trial) -> tuple[float, float]:
    """Step seconds and memory bytes by today's estimate: that of the list, which the candidates are compared with."""
    index = candidates.keys.get(trial.config.key())
    if index is not None:
        return float(candidates.step_seconds[index]), float(candidates.memory_bytes[index])
    estimate = trial.estimate or candidates.estimate_of(trial.config)
    return estimate.step_seconds, estimate.memory_bytes


def _limited(seen: list[_Seen]) -> list[_Seen]:
    """The smallest two thirds and the latest third of a long list, in their order."""
    if len(seen) <= MAX_POINTS:
        return seen
    latest = MAX_POINTS // 3
    early = range(len(seen) - latest)
    smallest = sorted(early, key=lambda i: seen[i].value)[: MAX_POINTS - latest]
    return [seen[i] for i in sorted(smallest)] + seen[-latest:]
