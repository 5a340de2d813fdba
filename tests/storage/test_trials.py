"""Trials: numbered, unique per layout, advanced with an event each; lists and counts in one query."""

from __future__ import annotations

import pytest
from sqlalchemy import event, insert

from autotuner.domain.errors import Conflict, NotFound
from autotuner.domain.measurement import Failure
from autotuner.domain.parallel import ParallelConfig
from autotuner.storage import tables
from autotuner.storage.database import Database
from tests.support.storage import T0, add_job, add_measured, add_trial, estimate, later, measurement


def test_a_trial_is_read_back_equal_with_its_number(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        first = add_trial(store, "t-b", job_id="j1", micro_batch_size=1)
        second = add_trial(store, "t-a", job_id="j1", micro_batch_size=2)
    assert (first.number, second.number) == (0, 1)
    with database.read() as store:
        assert store.trials.get("t-b") == first
        # By number, not by id.
        assert store.trials.list("j1") == [first, second]
    assert first.estimate == estimate(ParallelConfig(dp=4))
    assert (first.state, first.attempts, first.measurement, first.failure) == ("queued", 0, None, None)


def test_numbers_count_within_each_job(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_job(store, "j2")
        add_trial(store, "t1", job_id="j1")
        assert add_trial(store, "t2", job_id="j2").number == 0


def test_a_layout_is_tried_once_per_job(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_job(store, "j2")
        add_trial(store, "t1", job_id="j1")
        add_trial(store, "t2", job_id="j2")
        with pytest.raises(Conflict, match="job j1 has trial 0 for tp1-pp1-dp4-mb1 already"):
            add_trial(store, "t3", job_id="j1")
        assert len(store.trials.list("j1")) == 1


def test_an_id_that_is_taken_is_a_conflict_and_nothing_is_written(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
    with pytest.raises(Conflict, match="UNIQUE"), database.write() as store:
        add_trial(store, "t1", job_id="j1", micro_batch_size=2)
    with database.read() as store:
        assert len(store.trials.list("j1")) == 1


def test_unknown_jobs_and_trials_are_not_found(database: Database) -> None:
    with database.write() as store:
        with pytest.raises(NotFound, match="no job nope"):
            add_trial(store, "t1", job_id="nope")
        with pytest.raises(NotFound, match="no trial nope"):
            store.trials.launching("nope", now=T0)
        assert store.trials.list("nope") == []


def test_a_success_passes_through_its_states(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        launched = store.trials.launching("t1", now=later(1))
        assert (launched.state, launched.attempts, launched.started_at) == ("launching", 1, later(1))
        assert store.trials.running("t1", now=later(2)).state == "running"
        done = store.trials.succeeded("t1", measurement(), now=later(3))
    assert (done.state, done.measurement, done.finished_at) == ("succeeded", measurement(), later(3))
    with database.read() as store:
        events = store.events.of_kind("j1", "trial.state")
    assert [e.data["state"] for e in events] == ["launching", "running", "succeeded"]
    assert {e.trial_id for e in events} == {"t1"}
    expected = {"number": 0, "key": "tp1-pp1-dp4-mb1", "tokens_per_second": 1000.0, "step_seconds": 0.25}
    assert events[-1].data == {"state": "succeeded", **expected}


def test_a_failure_tells_its_kind(database: Database) -> None:
    failure = Failure(kind="out_of_memory", message="9 GB of 8 GB", rank=1)
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        store.trials.launching("t1", now=T0)
        trial = store.trials.failed("t1", failure, now=later(1))
        assert (trial.failure, trial.finished_at) == (failure, later(1))
        assert store.events.of_kind("j1", "trial.state")[-1].data["failure"] == "out_of_memory"


def test_a_lost_trial_goes_back_and_keeps_its_attempts(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        store.trials.launching("t1", now=T0)
        back = store.trials.requeue("t1", now=T0)
        assert (back.state, back.attempts, back.started_at) == ("queued", 1, None)
        assert store.trials.launching("t1", now=later(9)).attempts == 2


def test_a_step_the_life_cycle_forbids_changes_nothing(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        before = store.events.last_id()
        with pytest.raises(Conflict, match="cannot go from queued to succeeded"):
            store.trials.succeeded("t1", measurement(), now=T0)
        store.trials.cancelled("t1", now=T0)
        with pytest.raises(Conflict, match="it is final"):
            store.trials.launching("t1", now=T0)
        assert store.events.last_id() == before + 1
        assert store.trials.get("t1").measurement is None


def test_a_confirmation_replaces_the_measurement_and_the_jobs_best(database: Database) -> None:
    pooled = measurement(tokens_per_second=900.0, runs=2)
    with database.write() as store:
        add_job(store, "j1")
        add_measured(store, "t1", job_id="j1", micro_batch_size=1, tokens_per_second=1000.0)
        add_measured(store, "t2", job_id="j1", micro_batch_size=2, tokens_per_second=950.0)
        assert store.trials.best_for(["j1"])["j1"].id == "t1"
        assert store.trials.pooled("t1", pooled, now=T0).measurement == pooled
        # 900 after pooling is below the other trial's 950.
        assert store.trials.best_for(["j1"])["j1"].id == "t2"
        (confirmed,) = store.events.of_kind("j1", "trial.confirmed")
    assert (confirmed.data["tokens_per_second"], confirmed.data["runs"]) == (900.0, 2)
    with database._reader.connect() as connection:
        best = connection.execute(tables.jobs.select()).one().best_tokens_per_second
    assert best == 950.0


def test_only_a_succeeded_trial_is_confirmed(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_trial(store, "t1", job_id="j1")
        with pytest.raises(Conflict, match="t1 is queued"):
            store.trials.pooled("t1", measurement(), now=T0)


def test_counts_have_every_state_and_every_job(database: Database) -> None:
    zeros = {"queued": 0, "launching": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0}
    with database.write() as store:
        add_job(store, "j1")
        add_job(store, "j2")
        add_trial(store, "t1", job_id="j1", micro_batch_size=1)
        add_trial(store, "t2", job_id="j1", micro_batch_size=2)
        add_measured(store, "t3", job_id="j1", micro_batch_size=4, tokens_per_second=1.0)
        assert store.trials.counts("j1") == {**zeros, "queued": 2, "succeeded": 1}
        assert store.trials.counts_for(["j1", "j2"]) == {"j1": {**zeros, "queued": 2, "succeeded": 1}, "j2": zeros}
        assert store.trials.counts_for([]) == {}


def test_the_best_of_several_jobs_leaves_out_what_was_not_measured(database: Database) -> None:
    with database.write() as store:
        for job_id in ("j1", "j2", "j3"):
            add_job(store, job_id)
        for number, speed in enumerate((10.0, 30.0, 30.0)):
            add_measured(store, f"a{number}", job_id="j1", micro_batch_size=number + 1, tokens_per_second=speed)
        add_measured(store, "b", job_id="j2", micro_batch_size=1, tokens_per_second=5.0)
        add_trial(store, "c", job_id="j3")
        best = store.trials.best_for(["j1", "j2", "j3"])
    # Equal speeds: the trial that came first.
    assert {job_id: trial.id for job_id, trial in best.items()} == {"j1": "a1", "j2": "b"}
    assert best["j1"].measurement == measurement(tokens_per_second=30.0)


def test_ten_thousand_trials_are_listed_by_one_query(database: Database) -> None:
    row = {"job_id": "j1", "state": "queued", "source": "sampler", "reason": "", "attempts": 0, "created_at": T0}
    rows = [
        {**row, "id": f"t{n}", "number": n, "key": f"mb{n}", "config": ParallelConfig(micro_batch_size=n + 1)}
        for n in range(10_000)
    ]
    with database.write() as store:
        add_job(store, "j1")
    with database._writer.begin() as connection:
        connection.execute(insert(tables.trials), rows)
    statements: list[str] = []

    @event.listens_for(database._reader, "before_cursor_execute")
    def _count(_connection, _cursor, statement, _parameters, _context, _many) -> None:
        statements.append(statement)

    with database.read() as store:
        listed = store.trials.list("j1")
    assert [trial.number for trial in listed] == list(range(10_000))
    assert [s.split()[0] for s in statements] == ["BEGIN", "SELECT"]
