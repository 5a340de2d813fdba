"""A worker that dies at any point loses no trial and counts none twice."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import StorageUnavailable
from autotuner.scheduling.collector import MAX_LOST_RUNS
from autotuner.storage.jobs import LeaseLost
from tests.support.scheduling import request


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs, and no handler for errors catches it."""


def _dying(target, name, *, at_call: int):
    """Replace a method so that its n-th call dies before it does anything."""
    original, calls = getattr(target, name), []

    def method(*args, **kwargs):
        calls.append(1)
        if len(calls) == at_call:
            raise Killed
        return original(*args, **kwargs)

    setattr(target, name, method)


def _finish(bench, job):
    """Other workers take over, each after the last one's lease has run out, until the job is finished."""
    for number in range(50):
        bench.clock.forward(bench.lease_seconds + 1)
        if bench.drive(f"heir-{number}").state == "completed":
            return
    raise AssertionError(f"job {job.id} never ended")


def _check_books(bench, job, executor):
    """Every trial has exactly one measuring success, nothing was counted twice."""
    trials = bench.trials(job.id)
    assert [t.number for t in trials] == list(range(6))
    assert all(t.state == "succeeded" for t in trials)
    with bench.database.read() as store:
        runs = store.runs.of_job(job.id)
    measured = [r.trial_id for r in runs if r.purpose == "measure" and r.state == "succeeded"]
    assert sorted(measured) == sorted(t.id for t in trials)
    for trial in trials:
        own = [r for r in runs if r.trial_id == trial.id and r.state == "succeeded"]
        assert trial.measurement.runs == len(own)
        assert trial.measurement.step_seconds.count == 6 * len(own)
    assert len(executor.submitted) == len(set(executor.submitted))


@pytest.mark.parametrize("method", ["submit", "poll", "release", "run_dir"])
@pytest.mark.parametrize("at_call", [1, 2, 5, 8])
def test_a_worker_killed_around_its_executor_is_survived(bench, executor, method, at_call):
    job = bench.operations.submit(request())
    _dying(executor, method, at_call=at_call)
    with pytest.raises(Killed):
        bench.drive()
    _finish(bench, job)
    _check_books(bench, job, executor)


@pytest.mark.parametrize("at_call", range(1, 26, 2))
def test_a_worker_killed_before_any_write_is_survived(bench, executor, at_call, monkeypatch):
    job = bench.operations.submit(request())
    claim_writes = 1
    _dying(bench.database, "write", at_call=claim_writes + at_call)
    with pytest.raises(Killed):
        bench.drive()
    monkeypatch.undo()
    _finish(bench, job)
    _check_books(bench, job, executor)


def test_a_run_that_was_never_started_is_put_back(bench, executor):
    """The row said `launching` and then the worker died: the executor has never heard of the run."""
    job = bench.operations.submit(request())
    _dying(executor, "submit", at_call=1)
    with pytest.raises(Killed):
        bench.drive()
    assert [t.state for t in bench.trials(job.id)] == ["launching"]
    _finish(bench, job)
    with bench.database.read() as store:
        states = [r.state for r in store.runs.of_trial(bench.trials(job.id)[0].id) if r.purpose == "measure"]
    assert states == ["lost", "succeeded"]


def test_a_trial_that_is_lost_again_and_again_fails_in_the_end(bench, executor):
    job = bench.operations.submit(request())
    first = []

    def forgets(name):
        trial_id = name.rsplit("-a", 1)[0]
        first.append(trial_id)
        return trial_id == first[0]

    executor.forgets = forgets
    assert bench.drive().state == "completed"
    trial = bench.trials(job.id)[0]
    assert (trial.state, trial.failure.kind) == ("failed", "lost")
    assert trial.attempts == MAX_LOST_RUNS


def test_a_worker_that_lost_its_lease_writes_nothing_more(bench, executor):
    job = bench.operations.submit(request())
    with bench.database.write() as store:
        old = store.jobs.claim("old", now=bench.clock(), lease_seconds=30.0)
    driver = bench.worker("old")._driver(old)
    driver.tick()
    before = bench.trials(job.id)
    bench.clock.forward(31)
    with bench.database.write() as store:
        assert store.jobs.claim("new", now=bench.clock(), lease_seconds=30.0) is not None
    with pytest.raises(LeaseLost):
        driver.tick()
    assert bench.trials(job.id) == before


def test_a_stopping_worker_ends_its_run_and_puts_the_trial_back(bench, executor):
    job = bench.operations.submit(request())
    with bench.database.write() as store:
        claim = store.jobs.claim("w1", now=bench.clock(), lease_seconds=30.0)
    executor.held = True
    driver = bench.worker()._driver(claim)
    driver.tick()
    driver.park()
    assert [t.state for t in bench.trials(job.id)] == ["queued"]
    with bench.database.write() as store:
        store.jobs.release(claim)
    assert bench.drive("w2").state == "completed"
    _check_books(bench, job, executor)


def test_an_error_of_our_own_ends_the_job_with_its_text(bench, executor):
    job = bench.operations.submit(request())

    def broken(_order):
        raise RuntimeError("something nobody thought of")

    executor.submit = broken
    ended = bench.drive()
    assert ended.state == "failed"
    assert ended.error == "RuntimeError: something nobody thought of"
    assert job.id == ended.id


def test_a_database_that_does_not_answer_is_no_fault_of_the_job(bench, executor):
    job = bench.operations.submit(request())
    original, calls = bench.database.write, []

    def unavailable():
        calls.append(1)
        if len(calls) == 6:
            raise StorageUnavailable("the database is locked")
        return original()

    bench.database.write = unavailable
    bench.drive()
    assert bench.job(job.id).state == "running"
    _finish(bench, job)
    _check_books(bench, job, executor)


def test_a_worker_says_that_it_is_alive(bench):
    bench.stop.set()
    bench.worker("w7").run()
    with bench.database.read() as store:
        alive = store.workers.list(now=bench.clock(), alive_within_seconds=60.0)
    assert [worker.host for worker in alive] == ["here"]
