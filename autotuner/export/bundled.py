"""The bundle of the trainer that comes with the program: script, request, sources, and where the figures come from.

The folder runs on any machine whose Python has torch; nothing else is needed.  The launch is rendered by the same code
that started the measured runs, so what was measured is what the user gets.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Final

from autotuner.domain.errors import LaunchRefused
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.result import BestResult
from autotuner.export.base import Bundle
from autotuner.export.provenance import provenance_text
from autotuner.export.readme import readme
from autotuner.handoff.request import export_request, request_text
from autotuner.handoff.support import trainer_folder
from autotuner.launch.plan import LaunchPlan, Starter
from autotuner.launch.shell import script
from autotuner.launch.torchrun import Torchrun

TORCHRUN: Final = Torchrun()
RUN_NAME: Final = "exported"
RUN_FOLDER: Final = "run"
TRAINER_MODULE: Final = "trials.run"

_SOURCES: Final = ("*.py", "*.txt")


def export_bundled(
    job: TuningJob,
    config: ParallelConfig,
    *,
    steps: int,
    best: BestResult,
    created_at: datetime,
    python: str = sys.executable,
    starter: Starter = TORCHRUN,
) -> Bundle:
    """Everything needed to train with this layout for `steps` steps.

    `python` is the interpreter the script uses where it exists and PYTHON is not set.
    Raises InvalidInput for a layout or a model that the bundled trainer cannot run, LaunchRefused without its sources.
    """
    threads = _threads(job, config)
    plan = LaunchPlan(
        run_name=RUN_NAME,
        python=python,
        module=TRAINER_MODULE,
        request_file="request.json",
        run_dir=RUN_FOLDER,
        package_root=".",
        nodes=job.cluster.nodes,
        processes_per_node=config.world_size // job.cluster.nodes,
        threads_per_rank=threads,
        device=job.cluster.device.kind,
    )
    request = export_request(job, config, run_id=RUN_NAME, steps=steps, threads_per_rank=threads)
    comment = (
        f"Trains with {config.world_size} ranks: {config.key()}. README.md says what can be changed.",
        "PYTHON=/path/to/python chooses the interpreter; it needs torch and nothing else.",
    )
    contents: dict[str, str] = {
        "launch.sh": script(starter.command(plan), comment=comment, folders=(RUN_FOLDER,)),
        "request.json": request_text(request),
        "README.md": readme(job, config, steps=steps, threads=threads, best=best),
        "provenance.json": provenance_text(job, config, best=best, created_at=created_at),
    }
    contents.update(trainer_sources(trainer_folder()))
    return Bundle.of(contents, executable=frozenset({"launch.sh"}))


def _threads(job: TuningJob, config: ParallelConfig) -> int:
    """What a measured rank had: its share of a node's cores where ranks share them, else one thread."""
    slots = job.cluster.constants.compute_slots_per_node
    ranks_per_node = max(1, config.world_size // job.cluster.nodes)
    return 1 if slots is None else max(1, slots // ranks_per_node)


def trainer_sources(folder: Path) -> dict[str, str]:
    """The trainer's package as path to text, below the name that the launch imports. Raises LaunchRefused."""
    found = {
        f"{folder.name}/{path.relative_to(folder).as_posix()}": path.read_text(encoding="utf-8")
        for pattern in _SOURCES
        for path in folder.rglob(pattern)
        if path.is_file()
    }
    entry = f"{TRAINER_MODULE.replace('.', '/')}.py"
    if entry not in found:
        raise LaunchRefused(f"the trainer's sources are not in {folder} ({entry} is missing); install it again")
    return found
