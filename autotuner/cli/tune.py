"""`tune`: a job file to the service and followed to its end, or run here without one."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from autotuner.cli.configure import make_client, make_settings
from autotuner.cli.exits import NoResult, TimedOut
from autotuner.cli.jobfile import read_job_file
from autotuner.cli.output import console, emit_json, leaderboard, print_best, say
from autotuner.cli.remote import watch
from autotuner.domain.base import DERIVE
from autotuner.domain.job import Job, JobRequest
from autotuner.domain.lifecycle import JOB_FINISHED
from autotuner.domain.validation import validated
from autotuner.settings import use_one_blas_thread
from autotuner.storage.database import Database


def tune_remote(file: Path, *, strategy: str, url: str, wait: bool, timeout_seconds: float, as_json: bool) -> None:
    """Submit, and follow unless told otherwise."""
    client = make_client(url=url)
    job = client.submit(with_strategy(read_job_file(file), strategy))
    say(f"submitted job {job['id']} ({job['candidates']} candidates)")
    if wait:
        watch(job["id"], timeout_seconds=timeout_seconds, url=url, as_json=as_json)
    elif as_json:
        emit_json(job)
    else:
        console().print(job["id"])


def with_strategy(request: JobRequest, strategy: str) -> JobRequest:
    """The request with another strategy, if one is given. Raises InvalidInput for an unknown one."""
    return validated(JobRequest, {**request.model_dump(), "strategy": strategy}) if strategy else request


def tune_local(
    file: Path, *, strategy: str, output: Path, data_dir: str, timeout_seconds: float, as_json: bool
) -> None:
    """Run a job here: a worker in this process, results in the data folder, the bundle in `output`."""
    use_one_blas_thread()
    from autotuner.cli.probing import ensure_probe  # noqa: PLC0415
    from autotuner.wiring import build_services, build_worker  # noqa: PLC0415

    request = with_strategy(read_job_file(file), strategy)
    settings = make_settings(data_dir=data_dir)
    services = build_services(settings)
    stop = threading.Event()
    try:
        ensure_probe(settings, database=services.database)
        job = services.operations.submit(request)
        say(f"tuning {job.spec.name}: {job.candidates} candidates")
        worker = build_worker(settings, database=services.database, stop=stop)
        thread = threading.Thread(target=worker.run, name="worker")
        thread.start()
        try:
            ended = _follow(services.database, job.id, timeout_seconds=timeout_seconds)
        finally:
            stop.set()
            thread.join()
        if ended.state != "completed":
            raise NoResult(f"job {ended.id} {ended.state}: {ended.error or ended.stopped_because}")
        bundle = services.operations.export(job.id, framework="bundled", launcher="torchrun", steps=DERIVE)
        bundle.write(output)
        best = services.operations.best(job.id).as_json()
        with services.database.read() as store:
            trials = [{**t.as_json(), "key": t.config.key()} for t in store.trials.list(job.id)]
    finally:
        services.close()
    if as_json:
        emit_json(best)
        return
    console().print(leaderboard(trials, title="Layouts"))
    print_best(best)
    console().print(f"  script: bash {json.dumps(str(output / 'launch.sh'))}", markup=False)


def _follow(database: Database, job_id: str, *, timeout_seconds: float) -> Job:
    deadline = time.monotonic() + timeout_seconds
    shown = 0
    while True:
        with database.read() as store:
            job, trials = store.jobs.get(job_id), store.trials.list(job_id)
        ended = [trial for trial in trials if trial.finished_at is not None]
        for trial in sorted(ended, key=lambda t: t.number)[shown:]:
            told = f"{trial.measurement.tokens_per_second:,.0f} tokens/s" if trial.measurement else trial.state
            say(f"[{trial.number + 1}/{job.spec.budget.max_trials}] {trial.config.key()}: {told}")
        shown = len(ended)
        if job.state in JOB_FINISHED:
            return job
        if time.monotonic() > deadline:
            raise TimedOut(f"job {job_id} did not end within {timeout_seconds:.0f} s")
        time.sleep(0.2)
