"""How the processes of a run are started: the choice only, no command lines."""

from __future__ import annotations

from typing import Literal

from autotuner.domain.base import Slug, Value

LauncherKind = Literal["local", "slurm"]


class LauncherSpec(Value):
    """`profile` names a launcher that the operator configured; a job can never bring a command of its own."""

    kind: LauncherKind = "local"
    profile: Slug = "default"
