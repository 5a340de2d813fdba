"""Commands that talk to a running service."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from autotuner.cli.configure import make_client
from autotuner.cli.exits import NoResult, Refused
from autotuner.cli.output import Json, console, emit_json, leaderboard, print_best, say
from autotuner.cli.watch import watch_job
from autotuner.domain.errors import InvalidInput


def list_jobs(*, limit: int, url: str, as_json: bool) -> None:
    """The newest jobs."""
    jobs = make_client(url=url).jobs(limit=limit)
    if as_json:
        emit_json(jobs)
        return
    table = Table()
    for name in ("id", "name", "state", "model", "devices", "best tokens/s", "trials"):
        table.add_column(name)
    for job in jobs:
        best = job["best_tokens_per_second"]
        spec = job["spec"]
        table.add_row(
            job["id"],
            job["name"] if "name" in job else spec["name"],
            job["state"],
            spec["model"]["name"],
            str(spec["cluster"]["nodes"] * spec["cluster"]["devices_per_node"]),
            f"{best:,.0f}" if best else "-",
            f"{sum(job['trials'].values())}/{spec['budget']['max_trials']}",
        )
    console().print(table)


def show_job(job_id: str, *, url: str, as_json: bool) -> None:
    """One job."""
    client = make_client(url=url)
    job = client.job(job_id)
    if as_json:
        emit_json(job)
        return
    console().print(f"{job['spec']['name']} ({job['id']}): {job['state']}", markup=False)
    if job["error"]:
        console().print(job["error"], markup=False)
    console().print(leaderboard(client.trials(job_id), title="Layouts"))
    try:
        print_best(client.best(job_id))
    except Refused as error:
        say(str(error))


def watch(job_id: str, *, timeout_seconds: float, url: str, as_json: bool) -> None:
    """Follow a job to its end."""
    client = make_client(url=url)
    job = watch_job(client, job_id, timeout_seconds=timeout_seconds)
    report_end(job, best=_best_or_refuse(job, client.best), as_json=as_json)


def report_end(job: Json, *, best: Json, as_json: bool) -> None:
    """What a job that ended well leaves on standard output."""
    if as_json:
        emit_json(best)
    else:
        say(f"job {job['id']} {job['state']}")
        print_best(best)


def _best_or_refuse(job: Json, best: Callable[[str], Json]) -> Json:
    if job["state"] != "completed":
        raise NoResult(f"job {job['id']} {job['state']}: {job['error'] or job['stopped_because']}")
    return best(job["id"])


def act(job_id: str, *, action: str, url: str, as_json: bool) -> None:
    """Cancel, pause or resume."""
    job = make_client(url=url).act(job_id, action=action)
    if as_json:
        emit_json(job)
    else:
        say(f"job {job['id']} is {job['state']}, wanted: {job['desired_state']}")


def list_trials(job_id: str, *, url: str, as_json: bool) -> None:
    """All trials of a job."""
    trials = make_client(url=url).trials(job_id)
    if as_json:
        emit_json(trials)
    else:
        console().print(leaderboard(trials, title="Trials", limit=len(trials)))


def show_trial(trial_id: str, *, url: str) -> None:
    """One trial as JSON."""
    emit_json(make_client(url=url).trial(trial_id))


def show_log(trial_id: str, *, rank: int, url: str) -> None:
    """A rank's log."""
    console().print(make_client(url=url).trial_log(trial_id, rank=rank), markup=False, end="")


def export_job(job_id: str, *, framework: str, launcher: str, output: Path, url: str) -> None:
    """Fetch the bundle and write it."""
    content = make_client(url=url).export(job_id, framework=framework, launcher=launcher)
    unpack(content, output)
    say(f"wrote {output / 'launch.sh'}")


def unpack(content: bytes, output: Path) -> None:
    """Write the files of a bundle's zip below `output`, keeping which may be executed. Raises InvalidInput."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                target = (output / info.filename).resolve()
                if not target.is_relative_to(output.resolve()):
                    raise InvalidInput(f"the bundle holds a file outside its folder: {info.filename!r}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))
                target.chmod(0o755 if (info.external_attr >> 16) & 0o100 else 0o644)
    except OSError as error:
        raise InvalidInput(f"{output}: {error.strerror}") from None
