"""Jobs: what is written is read back, the life cycle is kept, lists page, finished jobs go with all they own."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import Conflict, NotFound
from autotuner.storage.database import Database
from tests.support.storage import T0, add_job, add_measured, add_trial, later, tuning_job


def test_a_job_is_read_back_equal(database: Database) -> None:
    with database.write() as store:
        created = add_job(store, "j1")
    with database.read() as store:
        found = store.jobs.get("j1")
    assert found == created
    assert found.spec == tuning_job()
    assert (found.state, found.desired_state, found.candidates) == ("queued", "run", 12)
    assert found.rejections == {"memory": 3}
    assert (found.created_at, found.started_at, found.finished_at) == (T0, None, None)


def test_an_unknown_job_is_not_found(database: Database) -> None:
    with database.read() as store, pytest.raises(NotFound, match="no job nope"):
        store.jobs.get("nope")


def test_an_id_is_used_once(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        with pytest.raises(Conflict, match="j1 exists already"):
            add_job(store, "j1")


def test_states_follow_the_life_cycle_with_their_times_and_events(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        assert store.jobs.set_state("j1", "running", now=later(1)).started_at == later(1)
        store.jobs.set_state("j1", "paused", now=later(2))
        # Started once: a pause does not move the start.
        assert store.jobs.set_state("j1", "running", now=later(3)).started_at == later(1)
        done = store.jobs.set_state("j1", "completed", now=later(4), stopped_because="budget")
        assert (done.finished_at, done.stopped_because) == (later(4), "budget")
        again = store.jobs.set_state("j1", "queued", now=later(5))
        assert (again.finished_at, again.stopped_because) == (None, "")
    with database.read() as store:
        told = [(event.kind, event.data["state"]) for event in store.events.after(0, job_id="j1", limit=10)]
    assert told == [
        ("job.created", "queued"),
        ("job.state", "running"),
        ("job.state", "paused"),
        ("job.state", "running"),
        ("job.state", "completed"),
        ("job.state", "queued"),
    ]


def test_a_step_the_life_cycle_forbids_changes_nothing(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        before = store.events.last_id()
        with pytest.raises(Conflict, match="cannot go from queued to completed"):
            store.jobs.set_state("j1", "completed", now=T0)
        assert store.jobs.get("j1").state == "queued"
        assert store.events.last_id() == before


def test_a_failed_job_keeps_its_error(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        store.jobs.set_state("j1", "failed", now=T0, stopped_because="an error", error="disk full")
        assert store.jobs.get("j1").error == "disk full"


def test_a_wish_is_noted_once_however_often_it_is_told(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        for _ in range(3):
            assert store.jobs.set_desired("j1", "cancel", now=T0).desired_state == "cancel"
        assert [e.data["desired_state"] for e in store.events.of_kind("j1", "job.note")] == ["cancel"]


def test_lists_are_newest_first_and_page_by_the_last_id(database: Database) -> None:
    # b and c share their time: then the larger id counts as newer.
    with database.write() as store:
        for job_id, seconds in (("z", 0), ("b", 1), ("c", 1), ("a", 2)):
            add_job(store, job_id, now=later(seconds))
    with database.read() as store:
        first = store.jobs.list(state=None, limit=2, before_id=None)
        second = store.jobs.list(state=None, limit=2, before_id=first[-1].id)
        assert [job.id for job in first + second] == ["a", "c", "b", "z"]
        assert store.jobs.list(state=None, limit=2, before_id="z") == []


def test_paging_goes_on_after_the_job_at_the_edge_was_deleted(database: Database) -> None:
    with database.write() as store:
        for number in range(3):
            add_job(store, f"j{number}", now=later(number))
        store.jobs.set_state("j1", "cancelled", now=T0)
        store.jobs.delete("j1")
        assert [job.id for job in store.jobs.list(state=None, limit=9, before_id="j1")] == ["j0"]


def test_lists_filter_by_state(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        add_job(store, "j2")
        store.jobs.set_state("j2", "running", now=T0)
        assert [job.id for job in store.jobs.list(state="running", limit=9, before_id=None)] == ["j2"]


def test_only_a_finished_job_is_deleted(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        with pytest.raises(Conflict, match="queued and cannot be deleted; cancel it first"):
            store.jobs.delete("j1")
        with pytest.raises(NotFound):
            store.jobs.delete("j2")


def test_deleting_a_job_takes_its_trials_runs_and_events_and_no_others(database: Database) -> None:
    with database.write() as store:
        for job_id in ("j1", "j2"):
            add_job(store, job_id)
            add_measured(store, f"{job_id}-t", job_id=job_id, micro_batch_size=1, tokens_per_second=1.0)
            store.runs.create(
                name=f"{job_id}-r", trial_id=f"{job_id}-t", job_id=job_id, attempt=1, purpose="measure", now=T0
            )
            store.jobs.set_state(job_id, "cancelled", now=T0)
    with database.write() as store:
        store.jobs.delete("j1")
    with database.write() as store:
        assert store.trials.list("j1") == store.runs.of_job("j1") == store.events.after(0, job_id="j1", limit=9) == []
        assert len(store.trials.list("j2")) == len(store.runs.of_job("j2")) == 1
        assert store.events.after(0, job_id="j2", limit=9)


def test_event_ids_never_come_back_after_a_deletion(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        store.jobs.set_state("j1", "cancelled", now=T0)
        last_id = store.events.last_id()
        store.jobs.delete("j1")
        add_job(store, "j2")
        add_trial(store, "t", job_id="j2")
        assert store.events.after(0, job_id=None, limit=1)[0].id == last_id + 1
