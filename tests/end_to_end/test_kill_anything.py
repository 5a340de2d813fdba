"""kill -9 of service, worker or runner while a trial runs: after a restart the job completes and the books are right.

Nothing is simulated here: real service, real worker, real ranks training a real GPT.
"""

from __future__ import annotations

import pytest

from tests.support.service_process import TINY_JOB, ServiceProcess, kill_all, processes_with, wait_until

pytestmark = [pytest.mark.trainer, pytest.mark.timeout(400)]


@pytest.fixture
def service(tmp_path):
    data_dir = tmp_path / "data dir"
    data_dir.mkdir()
    service = ServiceProcess(data_dir).start()
    yield service
    service.process.terminate()
    try:
        service.process.wait(60)
    finally:
        # What is left names the data folder in its command line; a test that failed may leave some.
        left = processes_with(str(data_dir))
        kill_all(left)
    assert left == [], service.log_tail()


def _submit(service):
    response = service.post("/jobs", TINY_JOB)
    assert response.status_code == 201, response.text
    return response.json()["id"]


def _running_step(service, job_id):
    """True while a trial of the job trains: it has reported at least one step and not ended."""
    events = service.get(f"/jobs/{job_id}/trials")["items"]
    return any(trial["state"] == "running" for trial in events)


def _finish_and_check(service, job_id):
    job = wait_until(
        lambda: (job := service.get(f"/jobs/{job_id}"))["state"] in ("completed", "failed") and job,
        "the job ends",
        seconds=200,
        log=service._log,
    )
    assert job["state"] == "completed", job["error"]
    trials = service.get(f"/jobs/{job_id}/trials")["items"]
    assert [t["number"] for t in trials] == [0, 1, 2, 3]
    assert len({t["key"] for t in trials}) == 4
    assert [t["state"] for t in trials] == ["succeeded"] * 4
    # Leaders are run a second time and their samples pooled, the winner at least; nothing is counted twice.
    assert {t["measurement"]["runs"] for t in trials} <= {1, 2}
    for trial in trials:
        measured = trial["measurement"]
        # 4 steps a run, or 3 where a run was surely slower than the best and ended early
        assert 3 * measured["runs"] <= measured["step_seconds"]["count"] <= 4 * measured["runs"]
        losses = measured["losses"]
        assert losses[-1] < losses[0], "it really trains"
    best = service.get(f"/jobs/{job_id}/best")
    assert best["trials"] == {"succeeded": 4, "failed": {}}
    assert next(t for t in trials if t["id"] == best["trial_id"])["measurement"]["runs"] == 2


def test_whatever_is_killed_the_job_completes(service):
    job_id = _submit(service)
    # Other services may run on this machine: only what names this one's folder is ours.
    folder, runs = str(service.data_dir), str(service.data_dir / "runs")

    wait_until(lambda: _running_step(service, job_id), "a trial runs", seconds=90, log=service._log)
    kill_all(processes_with("autotuner worker", folder))
    wait_until(lambda: processes_with("autotuner worker", folder), "another worker is started", seconds=30)

    wait_until(
        lambda: processes_with("autotuner.execution.runner", folder), "a run goes on", seconds=90, log=service._log
    )
    kill_all(processes_with("autotuner.execution.runner", folder))
    wait_until(
        lambda: len(service.get(f"/jobs/{job_id}/trials")["items"]) >= 2,
        "the job goes on",
        seconds=120,
        log=service._log,
    )

    wait_until(lambda: processes_with(runs), "a run goes on", seconds=90, log=service._log)
    service.kill()
    wait_until(lambda: not processes_with("autotuner worker", folder), "the worker goes with its service", seconds=45)
    assert processes_with(runs) == [], "the worker ended its run before it went"

    service.start()
    _finish_and_check(service, job_id)
    assert processes_with(runs) == []


def test_everything_killed_at_once_is_survived(service):
    job_id = _submit(service)
    wait_until(lambda: _running_step(service, job_id), "a trial runs", seconds=90, log=service._log)
    # The power goes: nobody can say goodbye.
    kill_all([service.process.pid, *processes_with(str(service.data_dir))])
    service.process.wait(10)
    service.start()
    _finish_and_check(service, job_id)
