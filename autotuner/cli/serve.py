"""`serve`, `worker` and `db`: the long-running processes and the database they share."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from autotuner.cli.configure import make_settings
from autotuner.cli.output import say
from autotuner.domain.errors import LaunchRefused
from autotuner.settings import Settings, use_one_blas_thread

SERVER_FILE = "server.json"


def run_serve(*, data_dir: str, host: str, port: int, with_worker: bool) -> None:
    """Run the API until SIGTERM or Ctrl-C. Raises StorageUnavailable, LaunchRefused (port taken)."""
    from api.deps import is_loopback  # noqa: PLC0415 - fastapi costs most of a second
    from api.server import run_server  # noqa: PLC0415
    from autotuner.execution.child import Companion  # noqa: PLC0415
    from autotuner.wiring import build_services, inherited_environment  # noqa: PLC0415

    settings = make_settings(data_dir=data_dir, host=host, port=port)
    start_logging(settings)
    if not is_loopback(settings.host) and not settings.behind_loopback_port:
        raise LaunchRefused(
            f"--host {settings.host} can be reached from outside and there are no accounts yet; use 127.0.0.1, or set"
            " AUTOTUNER_BEHIND_LOOPBACK_PORT=true where only loopback leads to it (a container's published port)"
        )
    services = build_services(settings)
    worker_argv = [sys.executable, "-m", "autotuner", "worker", "--data-dir", str(settings.data_dir.absolute())]
    worker = Companion(worker_argv, environment=inherited_environment(), grace_seconds=40.0, max_restarts=1_000_000)
    announcement = settings.data_dir / SERVER_FILE

    def ready(url: str) -> None:
        _announce(announcement, url)
        logging.getLogger(__name__).info("serving %s", url)
        if not settings.log_file:
            say(f"autotuner serves {url} (data in {settings.data_dir}); Ctrl-C ends it")
        if with_worker:
            worker.start()

    try:
        run_server(services, host=settings.host, port=settings.port, ready=ready)
    finally:
        if with_worker:
            worker.stop()
        announcement.unlink(missing_ok=True)
        services.close()


def run_worker(*, data_dir: str) -> None:
    """Run a worker until SIGTERM or Ctrl-C; the running trial is ended and put back."""
    use_one_blas_thread()
    from autotuner.cli.probing import ensure_probe  # noqa: PLC0415
    from autotuner.wiring import build_worker, open_database  # noqa: PLC0415

    settings = make_settings(data_dir=data_dir)
    start_logging(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    database = open_database(settings)
    try:
        ensure_probe(settings, database=database)
        build_worker(settings, database=database, stop=stop).run()
    finally:
        database.close()


def upgrade_database(*, data_dir: str) -> None:
    """Open the database, which upgrades it. Raises StorageUnavailable."""
    from autotuner.wiring import open_database  # noqa: PLC0415

    settings = make_settings(data_dir=data_dir)
    open_database(settings).close()
    say(f"{_shown(settings)} is up to date")


def _shown(settings: Settings) -> str:
    return settings.resolved_database_url.rsplit("@", 1)[-1]


def _announce(path: Path, url: str) -> None:
    """Tell others on this machine where the service listens, for instance when the port was chosen by the system."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    temporary.replace(path)


def start_logging(settings: Settings) -> None:
    """Log to standard error, or to the file that the settings name."""
    handler = logging.FileHandler(settings.log_file) if settings.log_file else logging.StreamHandler(sys.stderr)
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
