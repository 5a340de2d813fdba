"""All repositories on one connection: what one transaction sees and changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection

from autotuner.storage.calibrations import CalibrationRepository
from autotuner.storage.events import EventRepository
from autotuner.storage.jobs import JobRepository
from autotuner.storage.runs import RunRepository
from autotuner.storage.trials import TrialRepository
from autotuner.storage.workers import WorkerRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Got from `Database.read()` or `Database.write()`; valid only inside that block, in that thread."""

    jobs: JobRepository
    trials: TrialRepository
    runs: RunRepository
    events: EventRepository
    calibrations: CalibrationRepository
    workers: WorkerRepository

    @classmethod
    def on(cls, connection: Connection) -> Self:
        """The repositories of one transaction."""
        events = EventRepository(connection)
        return cls(
            jobs=JobRepository(connection, events=events),
            trials=TrialRepository(connection, events=events),
            runs=RunRepository(connection),
            events=events,
            calibrations=CalibrationRepository(connection),
            workers=WorkerRepository(connection),
        )
