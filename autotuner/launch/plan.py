"""What a launch needs to know, and the seam behind which the way ranks are started is chosen.

Decides the words of a launch; `torchrun.py` renders them as an argument list and `shell.py` that list as a script.
What an executor runs and what a user is handed are both rendered from a `LaunchPlan`, by the same `Starter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotuner.domain.cluster import DeviceKind
from autotuner.domain.outcome import RankExit


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One launch of `nodes * processes_per_node` ranks.

    Paths are absolute, or relative to the folder in which the launch happens.  `package_root` is the folder that holds
    the trainer's package and `module` the dotted name that each rank runs: the operator's choice, never a job's.
    """

    run_name: str
    python: str
    module: str
    request_file: str
    run_dir: str
    package_root: str
    nodes: int
    processes_per_node: int
    threads_per_rank: int
    device: DeviceKind
    env: tuple[tuple[str, str], ...] = ()

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.nodes * self.processes_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A rendered launch: `argv[0]` is the Python interpreter, `env` comes on top of a clean environment.

    `package_root` is meant for PYTHONPATH; it stands apart because a script must make it absolute.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    package_root: str


class Starter(Protocol):
    """How ranks come to life. Rules:

    * pure: the same plan gives the same command, and nothing is started, read or written;
    * each rank runs `plan.module` with `REQUEST --run-dir DIR` and finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
      MASTER_PORT in its environment;
    * when one rank dies, the command ends all others and exits with a status that is not 0;
    * ports are chosen by the system, so that any number of launches can run side by side.
    """

    def command(self, plan: LaunchPlan) -> Command:
        """The command that starts all ranks of one node. Raises InvalidInput for a plan it cannot start."""
        ...

    def rank_exits(self, log_text: str) -> tuple[RankExit, ...]:
        """How single ranks ended, as far as the command's own log tells; the first one to fail comes first."""
        ...


def rank_arguments(plan: LaunchPlan) -> Sequence[str]:
    """What every rank runs, however it is started: this is the only place that says so."""
    return ("-m", plan.module, plan.request_file, "--run-dir", plan.run_dir)
