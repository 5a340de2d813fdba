"""Cancel, pause and resume: wishes of the user that the worker carries out."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import Conflict
from tests.support.scheduling import request


def _claim(bench, worker="w1"):
    with bench.database.write() as store:
        return store.jobs.claim(worker, now=bench.clock(), lease_seconds=30.0)


def test_a_queued_job_is_cancelled_at_once(bench):
    job = bench.operations.submit(request())
    assert bench.operations.cancel(job.id).state == "cancelled"
    assert _claim(bench) is None
    assert bench.operations.cancel(job.id).state == "cancelled", "asking again is no error"


def test_cancelling_ends_the_running_trial(bench, executor):
    job = bench.operations.submit(request())
    claim = _claim(bench)
    executor.held = True
    driver = bench.worker()._driver(claim)
    assert driver.tick() is False, "the first trial runs"
    bench.operations.cancel(job.id)
    while not driver.tick():
        pass
    assert executor.cancelled == executor.submitted
    assert bench.job(job.id).state == "cancelled"
    assert [t.state for t in bench.trials(job.id)] == ["cancelled"]


def test_a_paused_job_lets_its_trial_end_and_goes_on_after_resume(bench, executor):
    job = bench.operations.submit(request())
    claim = _claim(bench)
    executor.held = True
    driver = bench.worker()._driver(claim)
    driver.tick()
    bench.operations.pause(job.id)
    assert driver.tick() is False, "the trial still runs"
    executor.held = False
    assert driver.tick() is True
    assert bench.job(job.id).state == "paused"
    assert [t.state for t in bench.trials(job.id)] == ["succeeded"]
    with bench.database.write() as store:
        store.jobs.release(claim)
    assert _claim(bench) is None, "nobody picks up a paused job"
    assert bench.operations.resume(job.id).state == "queued"
    assert bench.drive("w2").state == "completed"
    assert len(bench.trials(job.id)) == 6


def test_a_cancel_between_claim_and_first_tick_is_seen(bench, executor):
    job = bench.operations.submit(request())
    claim = _claim(bench)
    bench.operations.cancel(job.id)
    assert bench.worker()._driver(claim).tick() is True
    assert executor.submitted == []
    assert bench.job(job.id).state == "cancelled"


def test_a_finished_job_neither_pauses_nor_goes_on(bench):
    job = bench.operations.submit(request())
    bench.drive()
    for wish in (bench.operations.pause, bench.operations.resume):
        with pytest.raises(Conflict, match="is completed"):
            wish(job.id)
    assert bench.operations.cancel(job.id).state == "completed"


def test_only_a_finished_job_is_deleted(bench):
    job = bench.operations.submit(request())
    with pytest.raises(Conflict):
        bench.operations.delete(job.id)
    bench.drive()
    bench.operations.delete(job.id)
    with bench.database.read() as store:
        assert store.jobs.list(state=None, limit=10, before_id=None) == []
