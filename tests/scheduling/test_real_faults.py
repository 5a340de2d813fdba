"""A job whose ranks misbehave, as real processes: each fault has its kind and a log tail, and the job goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest

from autotuner.execution.base import RunOrder
from autotuner.execution.local import LocalExecutor
from tests.support.faults import FAULT, FAULT_RANK, MODULE
from tests.support.launching import Gang, tagged_pids
from tests.support.scheduling import Bench, request

# By micro-batch size of a layout: what its ranks do, and on which rank.
FAULTS = {1: ("allocate", "1"), 2: ("stall", "0"), 4: ("kill", "1"), 8: ("succeed", "0")}


class Misbehaving(LocalExecutor):
    """Starts the stand-in for the trainer with the fault of each layout, and shortens the no-progress deadline."""

    def submit(self, order: RunOrder) -> None:
        layout = json.loads(order.request_text)["layout"]
        fault, rank = FAULTS[layout["micro_batch_size"]]
        env: Sequence[tuple[str, str]] = ((FAULT, fault), (FAULT_RANK, rank)) if fault != "succeed" else ()
        plan = dataclasses.replace(order.plan, module=MODULE, env=tuple(env))
        super().submit(dataclasses.replace(order, plan=plan, no_progress_seconds=2.0))


@pytest.fixture
def bench(tmp_path):
    runs_root = tmp_path / "runs"
    runs_root.mkdir()
    bench = Bench.make(tmp_path, Misbehaving(runs_root, starter=Gang()))
    yield bench
    bench.database.close()
    assert tagged_pids(runs_root) == []


def test_each_fault_has_its_kind_and_the_job_goes_on(bench):
    job = bench.operations.submit(
        request(
            cluster={"preset": "local", "devices_per_node": 2},
            space={"tp": [1], "pp": [2], "micro_batch_size": [1, 2, 4, 8], "recompute": ["none"]},
            measure={"warmup_steps": 1, "steps": 3, "confirm_runs": 0},
        )
    )
    ended = bench.drive()
    assert ended.state == "completed", ended.error
    trials = {t.config.micro_batch_size: t for t in bench.trials(job.id)}
    kinds = {size: trial.failure.kind if trial.failure else trial.state for size, trial in trials.items()}
    assert kinds == {1: "out_of_memory", 2: "hang", 4: "crash", 8: "succeeded"}
    assert trials[1].failure.rank == 1
    assert trials[4].failure.rank == 1
    assert "SIGKILL" in trials[4].failure.message or "signal 9" in trials[4].failure.message
    for size in (1, 2, 4):
        assert trials[size].failure.hint
        assert trials[size].failure.log_tail
    best = bench.operations.best(job.id)
    assert best.config.micro_batch_size == 8
    assert best.trials.failed == {"out_of_memory": 1, "hang": 1, "crash": 1}
