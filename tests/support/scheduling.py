"""A worker on a temporary database and a fake executor, ticked by hand."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from autotuner.domain.job import Job, JobRequest
from autotuner.domain.machine import Machine
from autotuner.domain.trial import Trial
from autotuner.execution.base import Executor
from autotuner.operations import Operations
from autotuner.scheduling.worker import Worker, WorkerParts
from autotuner.storage.database import Database
from autotuner.storage.ids import new_id

MACHINE = Machine(hostname="here", cores=2, total_memory_bytes=8 * 2**30)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def request(**changes: Any) -> JobRequest:
    """A job of a tiny GPT on four ranks of this machine."""
    return JobRequest.model_validate(
        {
            "model": {"num_layers": 4, "hidden_size": 64, "num_heads": 4, "vocab_size": 256, "max_seq_len": 32},
            "workload": {"global_batch_size": 16, "precision": "fp32"},
            "cluster": {"preset": "local", "devices_per_node": 4},
            "budget": {"max_trials": 6},
            "space": {"recompute": ["none"]},
            **changes,
        }
    )


@dataclass
class Bench:
    """What a scheduling test holds in its hands."""

    database: Database
    executor: Executor
    clock: Clock
    operations: Operations
    stop: threading.Event
    lease_seconds: float = 30.0

    @classmethod
    def make(cls, root: Path, executor: Executor) -> Bench:
        database = Database.open(f"sqlite:///{root / 'autotuner.db'}")
        clock = Clock()
        operations = Operations(database=database, runs_root=root / "runs", machine=MACHINE, clock=clock, new_id=new_id)
        return cls(database=database, executor=executor, clock=clock, operations=operations, stop=threading.Event())

    def worker(self, worker_id: str = "w1") -> Worker:
        parts = WorkerParts(
            worker_id=worker_id,
            database=self.database,
            executor=self.executor,
            machine=MACHINE,
            clock=self.clock,
            new_id=new_id,
            lease_seconds=self.lease_seconds,
            tick_seconds=0.001,
            trainer_module="trials.run",
            version="test",
        )
        return Worker(parts, stop=self.stop)

    def drive(self, worker_id: str = "w1") -> Job:
        """Claim the next job and drive it to its end."""
        with self.database.write() as store:
            claim = store.jobs.claim(worker_id, now=self.clock(), lease_seconds=self.lease_seconds)
        assert claim is not None, "there is a job to claim"
        self.worker(worker_id).drive(claim)
        return self.job(claim.job_id)

    def job(self, job_id: str) -> Job:
        with self.database.read() as store:
            return store.jobs.get(job_id)

    def trials(self, job_id: str) -> list[Trial]:
        with self.database.read() as store:
            return store.trials.list(job_id)
