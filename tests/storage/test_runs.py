"""Runs: one row per attempt, each with its own measurement, so that pooling never counts one twice."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import Conflict, NotFound
from autotuner.storage.database import Database
from autotuner.storage.store import Store
from tests.support.storage import T0, add_job, add_trial, later, measurement


def _run(store: Store, name: str, *, attempt: int, trial_id: str = "t1", job_id: str = "j1"):
    return store.runs.create(
        name=name, trial_id=trial_id, job_id=job_id, attempt=attempt, purpose="measure", now=later(attempt)
    )


def test_active_runs_are_those_that_have_not_ended(database: Database) -> None:
    with database.write() as store:
        for job_id in ("j1", "j2"):
            add_job(store, job_id)
            add_trial(store, f"t-{job_id}", job_id=job_id)
            for attempt in (1, 2, 3):
                _run(store, f"{job_id}-a{attempt}", attempt=attempt, trial_id=f"t-{job_id}", job_id=job_id)
        store.runs.set_state("j1-a1", "lost", now=T0, measurement=None)
        store.runs.set_state("j1-a2", "running", now=T0, measurement=None)
        assert [(run.name, run.state) for run in store.runs.active("j1")] == [
            ("j1-a2", "running"),
            ("j1-a3", "launching"),
        ]
        assert sorted(store.runs.active_names()) == ["j1-a2", "j1-a3", "j2-a1", "j2-a2", "j2-a3"]
        assert [run.name for run in store.runs.of_job("j1")] == ["j1-a1", "j1-a2", "j1-a3"]
        assert [run.attempt for run in store.runs.of_trial("t-j2")] == [1, 2, 3]


def test_each_run_keeps_its_own_measurement(database: Database) -> None:
    first, second = measurement(tokens_per_second=1.0), measurement(tokens_per_second=2.0)
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        for attempt in (1, 2, 3):
            _run(store, f"r{attempt}", attempt=attempt)
        store.runs.set_state("r3", "succeeded", now=T0, measurement=second)
        store.runs.set_state("r1", "succeeded", now=later(5), measurement=first)
        store.runs.set_state("r2", "failed", now=T0, measurement=None)
        assert store.runs.of_trial("t1")[0].finished_at == later(5)
        assert store.runs.measurements("t1") == [first, second]
        with pytest.raises(Conflict, match="it is final"):
            store.runs.set_state("r1", "succeeded", now=T0, measurement=second)
        assert store.runs.measurements("t1") == [first, second]


def test_a_measurement_comes_with_success_and_only_then(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        _run(store, "r1", attempt=1)
        with pytest.raises(Conflict, match="cannot become failed with a measurement"):
            store.runs.set_state("r1", "failed", now=T0, measurement=measurement())
        with pytest.raises(Conflict, match="cannot become succeeded with no measurement"):
            store.runs.set_state("r1", "succeeded", now=T0, measurement=None)


def test_names_and_attempts_are_used_once(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        _run(store, "r1", attempt=1)
        with pytest.raises(Conflict, match="run r1 "):
            _run(store, "r1", attempt=2)
        with pytest.raises(Conflict, match="attempt 1 of trial t1"):
            _run(store, "r2", attempt=1)


def test_a_run_belongs_to_a_trial_of_its_job(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_job(store, "j2")
        add_trial(store, "t1", job_id="j1")
        with pytest.raises(NotFound, match="no trial t1 in job j2"):
            _run(store, "r1", attempt=1, job_id="j2")
        with pytest.raises(NotFound, match="no run r9"):
            store.runs.set_state("r9", "running", now=T0, measurement=None)
