"""Measures this machine once and keeps the figures: estimates for the `local` cluster are then in the right range."""

from __future__ import annotations

from autotuner.cli.output import say
from autotuner.domain.errors import AutotunerError
from autotuner.domain.probe import ProbeResult
from autotuner.execution.probe import run_probe_process
from autotuner.operations.jobs import PROBE_KEY
from autotuner.settings import Settings
from autotuner.storage.database import Database
from autotuner.wiring import detect_machine, utc_now

PROBE_RANKS = 2


def ensure_probe(settings: Settings, *, database: Database) -> None:
    """Probe unless this machine was probed before. A probe that fails only makes estimates coarser."""
    machine = detect_machine()
    with database.read() as store:
        payload = store.calibrations.get(PROBE_KEY)
    if payload is not None:
        known = ProbeResult.from_json(payload)
        if known.hostname == machine.hostname and known.cores == machine.cores:
            return
    say("measuring this machine (matrix products, memory, collectives) ...")
    try:
        probe_and_store(settings, database=database, ranks=PROBE_RANKS)
    except AutotunerError as error:
        say(f"the probe failed, estimates use defaults: {error}")


def probe_and_store(settings: Settings, *, database: Database, ranks: int) -> ProbeResult:
    """Run the probe and keep its figures. Raises LaunchRefused when it fails."""
    result = run_probe_process(settings.data_dir.absolute() / "probe.json", ranks=ranks, timeout_seconds=90.0)
    with database.write() as store:
        store.calibrations.put(PROBE_KEY, result.as_json(), now=utc_now())
    return result
