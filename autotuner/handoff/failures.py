"""Why a run failed, from what its ranks wrote and how its processes ended.

Decides the kind of a failure in order of trust: a rank's own failure file, then the deadline that ended the run, then
exit codes and signals.  Log text is quoted and never decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autotuner.domain.measurement import Failure, FailureKind
from autotuner.domain.outcome import RankExit, RunOutcome
from autotuner.handoff.logs import failure_tail
from trials.contract import (
    EXIT_DIVERGED,
    EXIT_MISMATCH,
    EXIT_OUT_OF_MEMORY,
    ContractError,
    RankFailure,
    failure_file,
    read_document,
)

HINTS: Final[dict[FailureKind, str]] = {
    "out_of_memory": "A rank needs more than its device's memory: use a smaller micro-batch, more tp or pp, ZeRO, or"
    " recomputation.",
    "host_out_of_memory": "This machine ran out of memory: use fewer ranks, or devices with less memory_bytes.",
    "hang": "No rank got on: look for a rank that waits in its log, or raise budget.trial_startup_seconds or"
    " budget.trial_no_progress_seconds if the machine is only slow.",
    "timeout": "The run was slower than its limit: raise budget.trial_timeout_seconds or measure fewer steps.",
    "launch_error": "The ranks could not be started: see the log, and try `autotuner doctor`.",
    "crash": "See the log of the rank that failed first.",
    "diverged": "The loss stopped being a number: use a smaller learning rate or another precision.",
    "mismatch": "Something else was built than was asked for: the trainer and the service must be of one version.",
    "lost": "The run's supervisor was killed and nobody knows how the run ended; it can be run again.",
    "cancelled": "The run was ended on request; it can be run again.",
}

_EXIT_KINDS: Final[dict[int, FailureKind]] = {
    EXIT_OUT_OF_MEMORY: "out_of_memory",
    EXIT_MISMATCH: "mismatch",
    EXIT_DIVERGED: "diverged",
}
_SIGKILL, _SIGTERM = 9, 15
_SIGNAL_WORDS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}

# What a healthy rank sees when a neighbour has died; such a crash is an effect and never the cause.
_NEIGHBOUR = re.compile(
    r"connection (?:was )?(?:closed|reset|refused)|broken pipe|closed by (?:the )?peer|recvvalue failed|"
    r"socket timeout|timed out waiting|watchdog|remote process exited",
    re.IGNORECASE,
)
_MAX_RANKS = 65_536


@dataclass(frozen=True, slots=True)
class _Cause:
    kind: FailureKind
    message: str
    rank: int | None


def failure_of(run_dir: Path, outcome: RunOutcome, *, run_name: str, note: str) -> Failure:
    """The failure of a run that left no valid report; `note` says what was wrong with the report, if anything."""
    files = _rank_failures(run_dir, run_name=run_name)
    cause = _cause(files, outcome)
    message = f"{cause.message} ({note})" if note else cause.message
    return make_failure(run_dir, kind=cause.kind, message=message, rank=cause.rank)


def make_failure(run_dir: Path, *, kind: FailureKind, message: str, rank: int | None) -> Failure:
    """A failure with the log lines and the advice that go with it."""
    tail = failure_tail(run_dir, rank=rank)
    return Failure(kind=kind, message=message, rank=rank, log_tail=tail, hint=HINTS[kind])


def _cause(files: Sequence[RankFailure], outcome: RunOutcome) -> _Cause:
    if outcome.reason == "cancelled":
        # What ranks write while they are being ended is no cause of anything.
        return _Cause("cancelled", outcome.message or "cancelled", None)
    first = files[0] if files else None
    if first is not None and not _is_effect(first):
        return _from_file(first)
    ended = _from_reason(outcome) or _from_exit(outcome, reported={file.rank for file in files})
    if ended is not None:
        return ended
    return _from_file(first) if first is not None else _unexplained(outcome)


def _rank_failures(run_dir: Path, *, run_name: str) -> list[RankFailure]:
    """Failure files of this run, the likeliest cause first: out of memory, then real errors, then effects."""
    found: list[RankFailure] = []
    for path in run_dir.glob(failure_file(0).replace("0", "*")):
        try:
            failure = read_document(RankFailure, path)
        except (OSError, ContractError):
            continue
        if failure.run_id == run_name and 0 <= failure.rank < _MAX_RANKS:
            found.append(failure)
    return sorted(found, key=lambda f: (f.kind != "out_of_memory", _is_effect(f), f.unix_seconds, f.rank))


def _is_effect(failure: RankFailure) -> bool:
    return failure.kind == "crash" and _NEIGHBOUR.search(failure.message) is not None


def _from_file(failure: RankFailure) -> _Cause:
    return _Cause(failure.kind, f"rank {failure.rank}: {failure.message}", failure.rank)


def _from_reason(outcome: RunOutcome) -> _Cause | None:
    kinds: dict[str, FailureKind] = {
        "hard_deadline": "timeout",
        "startup_deadline": "hang",
        "no_progress": "hang",
        "supervisor_died": "lost",
        "not_started": "launch_error",
    }
    kind = kinds.get(outcome.reason)
    return None if kind is None else _Cause(kind, outcome.message or outcome.reason.replace("_", " "), None)


def _from_exit(outcome: RunOutcome, *, reported: set[int]) -> _Cause | None:
    """From the first rank that was not merely told to end. `reported` ranks wrote themselves that they are effects."""
    own = [e for e in outcome.rank_exits if e.signal != _SIGTERM and e.exit_code != 0]
    # One rank's lack of memory is the cause of whatever happened to the others.
    own.sort(key=lambda e: e.exit_code != EXIT_OUT_OF_MEMORY)
    first = next((e for e in own if e.rank not in reported), None)
    if first is not None:
        return _from_rank_exit(first, outcome)
    if reported or own or outcome.rank_exits:
        return None
    if outcome.exit_code in _EXIT_KINDS:
        return _Cause(_EXIT_KINDS[outcome.exit_code], f"the launch command ended with {outcome.exit_code}", None)
    return None


def _from_rank_exit(ended: RankExit, outcome: RunOutcome) -> _Cause:
    who = f"rank {ended.rank}"
    if ended.signal == _SIGKILL:
        if outcome.oom_kills > 0:
            message = f"{who} was killed while the kernel ended {outcome.oom_kills} processes for lack of memory"
            return _Cause("host_out_of_memory", message, ended.rank)
        return _Cause("crash", f"{who} was killed (SIGKILL), perhaps out of memory", ended.rank)
    if ended.signal is not None:
        name = _SIGNAL_WORDS.get(ended.signal, f"signal {ended.signal}")
        return _Cause("crash", f"{who} was ended by {name}", ended.rank)
    kind = _EXIT_KINDS.get(ended.exit_code or 0, "crash")
    return _Cause(kind, f"{who} ended with exit code {ended.exit_code}", ended.rank)


def _unexplained(outcome: RunOutcome) -> _Cause:
    if outcome.signal is not None:
        return _Cause("crash", f"the launch command was ended by signal {outcome.signal}", None)
    if outcome.exit_code == 0:
        return _Cause("crash", "the run ended with exit code 0 and left no report", None)
    return _Cause("crash", f"the launch command ended with exit code {outcome.exit_code}", None)
