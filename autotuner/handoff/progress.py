"""How far a run has got, as its trainer last said it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from autotuner.domain.base import Value
from autotuner.handoff.tail import objects_from_end
from trials.contract import PROGRESS_FILE, ContractError, Progress, decode, encode

RunStage = Literal["startup", "warmup", "measure"]


class RunProgress(Value):
    """`step` of `total_steps` (warm-up included) are done; before the first one it is 0 and `phase` is "startup"."""

    unix_seconds: float
    phase: RunStage
    step: int
    total_steps: int
    step_seconds: float | None
    loss: float | None


def read_progress(run_dir: Path) -> RunProgress | None:
    """The last complete line of the run's progress, or None before there is one. Never raises for what is in it."""
    for line in objects_from_end(run_dir / PROGRESS_FILE):
        try:
            return RunProgress.from_json(encode(decode(Progress, line)))
        except ContractError:
            continue
    return None
