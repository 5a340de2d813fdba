"""`demo`: the whole product on this machine in a few minutes, through the same service and API that users call."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from autotuner.cli.client import Client
from autotuner.cli.configure import make_settings
from autotuner.cli.exits import NoResult, ServerUnreachable
from autotuner.cli.output import console, leaderboard, print_best, say
from autotuner.cli.probing import ensure_probe
from autotuner.cli.remote import unpack
from autotuner.cli.serve import SERVER_FILE
from autotuner.cli.watch import watch_job
from autotuner.domain.job import JobRequest
from autotuner.domain.validation import validated
from autotuner.execution.child import Companion
from autotuner.wiring import build_services, inherited_environment

_TIMEOUT_SECONDS = 1800.0
_START_SECONDS = 60.0


def demo_request(*, max_trials: int, devices: int) -> JobRequest:
    """A GPT of about a million parameters on this machine's cores, small enough to measure a dozen layouts."""
    return validated(
        JobRequest,
        {
            "name": "demo: a small GPT on this machine",
            "model": {"preset": "gpt-tiny"},
            "workload": {"global_batch_size": 16, "precision": "fp32"},
            "cluster": {"preset": "local", "devices_per_node": devices},
            "budget": {"max_trials": max_trials, "max_seconds": 600.0, "patience_trials": max_trials},
            "measure": {"warmup_steps": 2, "steps": 6},
        },
    )


def run_demo(output: Path, *, max_trials: int, devices: int) -> None:
    """Serve, submit, follow, export. Everything is written below `output`."""
    settings = make_settings(data_dir=str(output), host="127.0.0.1", port=0)
    services = build_services(settings)
    try:
        ensure_probe(settings, database=services.database)
    finally:
        services.close()
    announcement = output / SERVER_FILE
    announcement.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "autotuner", "serve", "--data-dir", str(output), "--host", "127.0.0.1", "--port", "0"]
    # In a session of its own, so that Ctrl-C reaches this process first and the service ends in order.
    service = Companion(
        argv,
        environment=inherited_environment() | {"AUTOTUNER_LOG_FILE": str(output.absolute() / "service.log")},
        grace_seconds=45.0,
        max_restarts=0,
        own_session=True,
    )
    service.start()
    try:
        _through_the_api(_wait_for_service(announcement, service), output, max_trials=max_trials, devices=devices)
    finally:
        service.stop()


def _through_the_api(url: str, output: Path, *, max_trials: int, devices: int) -> None:
    client = Client(url)
    job = client.submit(demo_request(max_trials=max_trials, devices=devices))
    console().print(f"Dashboard, live: {url}/jobs/{job['id']}", style="bold")
    say(f"{job['candidates']} layouts are possible on {devices} devices; measuring up to {max_trials} of them")
    try:
        ended = watch_job(client, job["id"], timeout_seconds=_TIMEOUT_SECONDS)
    except KeyboardInterrupt:
        say("stopping: ending the running trial")
        client.act(job["id"], action="cancel")
        raise
    if ended["state"] != "completed":
        raise NoResult(f"the demo job {ended['state']}: {ended['error'] or ended['stopped_because']}")
    best = client.best(job["id"])
    (output / "result.json").write_text(json.dumps(best, indent=2) + "\n", encoding="utf-8")
    unpack(client.export(job["id"], framework="bundled", launcher="torchrun"), output / "best")
    out = console()
    out.print(leaderboard(client.trials(job["id"]), title="Measured layouts, best first"))
    print_best(best)
    out.print(f"Launch script: {output / 'best' / 'launch.sh'}   (run it: bash {output / 'best' / 'launch.sh'})")
    out.print(f"Look again:    autotuner serve --data-dir {output}")
    client.close()


def _wait_for_service(announcement: Path, service: Companion) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if announcement.exists():
            url: str = json.loads(announcement.read_text(encoding="utf-8"))["url"]
            return url
        if service.ended.is_set():
            break
        time.sleep(0.05)
    raise ServerUnreachable(f"the service did not start; see {announcement.parent / 'service.log'}")
