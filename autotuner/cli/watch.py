"""Follows a job until it ends: a progress bar on a terminal, a line per event elsewhere. Reconnects by itself."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autotuner.cli.client import Client
from autotuner.cli.exits import ServerUnreachable, TimedOut
from autotuner.cli.output import say

Json = dict[str, Any]

FINISHED = ("completed", "failed", "cancelled")
_UNREACHABLE_LIMIT_SECONDS = 30.0


def watch_job(client: Client, job_id: str, *, timeout_seconds: float) -> Json:
    """Show the job's progress until it ends; gives its last record.

    Raises TimedOut, and ServerUnreachable when the service stays away for longer than a restart takes.
    """
    deadline = time.monotonic() + timeout_seconds
    lost_since: float | None = None
    last_event = 0
    with _Display(client.job(job_id)) as display:
        while True:
            if time.monotonic() > deadline:
                raise TimedOut(f"job {job_id} did not end within {timeout_seconds:.0f} s; it goes on without us")
            try:
                job = client.job(job_id)
                display.update(job)
                if job["state"] in FINISHED:
                    return job
                for event in client.events(job_id, after=last_event):
                    last_event = max(last_event, event["id"])
                    display.show(event)
                    if _ends(event) or time.monotonic() > deadline:
                        break
                lost_since = None
            except ServerUnreachable:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _UNREACHABLE_LIMIT_SECONDS:
                    raise
                time.sleep(0.5)


def _ends(event: Json) -> bool:
    return event["kind"] == "job.state" and event["data"].get("state") in FINISHED


class _Display(contextlib.AbstractContextManager["_Display"]):
    """A bar when standard error is a terminal, plain lines otherwise."""

    def __init__(self, job: Json) -> None:
        self._total = min(job["spec"]["budget"]["max_trials"], job["candidates"])
        self._done = 0
        self._best = ""
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("waiting for a worker", total=self._total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, job: Json) -> None:
        """Take over the counts of a job record."""
        counts = job["trials"]
        self._done = sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def show(self, event: Json) -> None:
        """One event."""
        data, kind = event["data"], event["kind"]
        if kind == "trial.state" and data["state"] in ("succeeded", "failed"):
            self._done += 1
            self._line(f"[{self._done}/{self._total}] trial {data['number']} {data['key']}: {_told(data)}")
        elif kind == "trial.confirmed":
            self._line(f"confirmed trial {data['number']} {data['key']}: {data['tokens_per_second']:,.0f} tokens/s")
        elif kind == "job.best":
            self._best = f", best {data['tokens_per_second']:,.0f} tokens/s ({data['key']})"
        elif kind == "trial.progress" and self._bar is not None:
            what = "confirming" if data["purpose"] == "confirm" else "trial"
            text = f"{what} {data['number']}: step {data['step']}/{data['total_steps']}{self._best}"
            self._bar.update(self._task, description=text, completed=self._done)

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
            self._bar.update(self._task, completed=self._done)
        else:
            say(text)


def _told(data: Json) -> str:
    if data["state"] == "succeeded":
        return f"{data['tokens_per_second']:,.0f} tokens/s"
    return f"failed ({data['failure']})"
