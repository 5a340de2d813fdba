"""Ranks started by torchrun on one node: the reference way, and the one that is exported.

Decides torchrun's arguments, the environment of the ranks, and how torchrun's own summary of failed ranks is read.
"""

from __future__ import annotations

import re

from autotuner.domain.errors import InvalidInput
from autotuner.domain.outcome import RankExit
from autotuner.launch.plan import Command, LaunchPlan, rank_arguments

LOGS_FOLDER = "logs"

_SIGTERM = 15
# torchrun's summary: one block of these two lines for each failed rank; a negative exit code is a signal.
_RANK_LINE = re.compile(r"^\s*rank\s*:\s*(\d{1,6})\b", re.MULTILINE)
_EXIT_LINE = re.compile(r"^\s*exitcode\s*:\s*(-?\d{1,4})\b", re.MULTILINE)
_SUMMARY_START = "ChildFailedError"


class Torchrun:
    """`python -m torch.distributed.run`, which starts each rank in a session of its own and ends all when one dies."""

    def command(self, plan: LaunchPlan) -> Command:
        """The launch of all ranks on this node. Raises InvalidInput for more than one node."""
        if plan.nodes != 1:
            raise InvalidInput(
                f"torchrun is rendered for one node and the plan has {plan.nodes}; use a cluster of 1 node",
                field="cluster.nodes",
            )
        argv = (
            plan.python,
            *("-m", "torch.distributed.run"),
            *("--nnodes", "1"),
            *("--nproc-per-node", str(plan.processes_per_node)),
            *("--rdzv-backend", "c10d"),
            # Port 0: the system picks a free one, so that launches side by side cannot collide.
            *("--rdzv-endpoint", "localhost:0"),
            *("--rdzv-id", plan.run_name),
            # Without it the ranks look up this machine's host name, which need not resolve in a container.
            *("--local-addr", "127.0.0.1"),
            *("--max-restarts", "0"),
            *("--log-dir", f"{plan.run_dir}/{LOGS_FOLDER}"),
            # Both: a log of its own for each rank, and everything on the console with the rank's number before it.
            *("--tee", "3"),
            *rank_arguments(plan),
        )
        return Command(argv=argv, env=_environment(plan), package_root=plan.package_root)

    def rank_exits(self, log_text: str) -> tuple[RankExit, ...]:
        """The exits in the last summary of the log, the first observed failure before ranks that torchrun ended."""
        _, found, summary = log_text.rpartition(_SUMMARY_START)
        if not found:
            return ()
        exits: dict[int, RankExit] = {}
        for block in re.split(r"^\[\d+\]:\s*$", summary, flags=re.MULTILINE)[1:]:
            rank, code = _RANK_LINE.search(block), _EXIT_LINE.search(block)
            if rank is not None and code is not None:
                exits.setdefault(int(rank[1]), _exit(int(rank[1]), int(code[1])))
        # The root cause is printed last; ranks that torchrun terminated itself show SIGTERM.
        return tuple(sorted(exits.values(), key=lambda e: e.signal == _SIGTERM))


def _exit(rank: int, code: int) -> RankExit:
    return RankExit(rank=rank, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)


def _environment(plan: LaunchPlan) -> tuple[tuple[str, str], ...]:
    """Variables that libraries read at import; what the trainer can set itself is in the request instead."""
    variables = {
        "OMP_NUM_THREADS": str(plan.threads_per_rank),
        # A rank that is killed must not take its last lines with it.
        "PYTHONUNBUFFERED": "1",
        # All ranks are on this machine: loopback works without a network and is the fastest way.
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if plan.device == "accelerator":
        # One hardware queue keeps the order in which kernels were launched, so that communication that was started
        # first also runs first (Megatron-LM asks for it with tensor parallelism).
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        # A collective that times out ends its rank instead of hanging for ever.
        variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    variables.update(plan.env)
    return tuple(sorted(variables.items()))
