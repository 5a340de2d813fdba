"""Builds the running parts from settings: the one place where concrete classes meet."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autotuner import __version__
from autotuner.domain.errors import LaunchRefused, StorageUnavailable
from autotuner.domain.machine import Machine
from autotuner.execution.local import LocalExecutor
from autotuner.operations import Operations
from autotuner.scheduling.worker import Worker, WorkerParts
from autotuner.settings import Settings
from autotuner.storage.database import Database
from autotuner.storage.ids import new_id

TRAINER_MODULE = "trials.run"


def utc_now() -> datetime:
    """The clock of the running program; tests pass their own."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the API and the command line work with."""

    settings: Settings
    database: Database
    operations: Operations
    machine: Machine

    def close(self) -> None:
        """Close database connections."""
        self.database.close()


def inherited_environment() -> dict[str, str]:
    """What a companion process of the service (its worker) gets: the service's own environment."""
    return dict(os.environ)


def detect_machine() -> Machine:
    """This machine's cores, memory and accelerators, without importing torch."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    nvidia = Path("/proc/driver/nvidia/gpus")
    return Machine(
        hostname=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)),
        total_memory_bytes=pages * page_bytes,
        accelerators=len(list(nvidia.iterdir())) if nvidia.is_dir() else 0,
    )


def open_database(settings: Settings) -> Database:
    """The database, upgraded to this version. Raises StorageUnavailable."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageUnavailable(
            f"the data folder {settings.data_dir} cannot be made: {error.strerror}; give another with --data-dir"
        ) from None
    return Database.open(settings.resolved_database_url)


def build_services(settings: Settings) -> Services:
    """Everything but the worker. Raises StorageUnavailable."""
    database = open_database(settings)
    machine = detect_machine()
    operations = Operations(
        database=database, runs_root=settings.runs_root, machine=machine, clock=utc_now, new_id=new_id
    )
    return Services(settings=settings, database=database, operations=operations, machine=machine)


def build_executor(settings: Settings) -> LocalExecutor:
    """The executor for runs on this machine. Raises LaunchRefused when its folder cannot be written."""
    try:
        settings.runs_root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LaunchRefused(
            f"the run folder {settings.runs_root} cannot be made: {error.strerror}; give another --data-dir"
        ) from None
    return LocalExecutor(settings.runs_root)


def build_worker(
    settings: Settings, *, database: Database, stop: threading.Event, trainer_module: str = TRAINER_MODULE
) -> Worker:
    """A worker on this machine."""
    machine = detect_machine()
    parts = WorkerParts(
        worker_id=f"{machine.hostname}:{os.getpid()}:{new_id()[-8:]}",
        database=database,
        executor=build_executor(settings),
        machine=machine,
        clock=utc_now,
        new_id=new_id,
        lease_seconds=settings.lease_seconds,
        tick_seconds=settings.tick_seconds,
        trainer_module=trainer_module,
        version=__version__,
    )
    return Worker(parts, stop=stop)
