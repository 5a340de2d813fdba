"""The command that starts ranks, and what torchrun says about how they ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.errors import InvalidInput
from autotuner.domain.outcome import RankExit
from autotuner.launch.plan import LaunchPlan
from autotuner.launch.torchrun import Torchrun

PLAN = LaunchPlan(
    run_name="t1-a1",
    python="/env/bin/python",
    module="trials.run",
    request_file="/runs/t1-a1/request.json",
    run_dir="/runs/t1-a1",
    package_root="/src",
    nodes=1,
    processes_per_node=4,
    threads_per_rank=2,
    device="cpu",
)

# As torch 2.13 prints it (shortened): rank 0 was terminated by torchrun because rank 1 had died.
SUMMARY = """\
[default0]:step 1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
trials.run FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_21:57:13
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 6732)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 6732
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_21:57:13
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 6733)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 6733
======================================================
"""


def test_the_command_names_trainer_request_and_run_directory_last() -> None:
    command = Torchrun().command(PLAN)

    assert command.argv[:3] == ("/env/bin/python", "-m", "torch.distributed.run")
    assert command.argv[-5:] == ("-m", "trials.run", "/runs/t1-a1/request.json", "--run-dir", "/runs/t1-a1")
    assert command.argv[command.argv.index("--nproc-per-node") + 1] == "4"
    assert command.argv[command.argv.index("--max-restarts") + 1] == "0"


def test_the_system_chooses_the_port() -> None:
    argv = Torchrun().command(PLAN).argv

    assert argv[argv.index("--rdzv-endpoint") + 1] == "localhost:0"


def test_only_accelerators_get_the_variables_of_their_libraries() -> None:
    on_cpu = dict(Torchrun().command(PLAN).env)
    on_gpu = dict(Torchrun().command(replace(PLAN, device="accelerator")).env)

    assert on_cpu == {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1"}
    assert on_gpu["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert on_gpu["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"


def test_variables_of_the_plan_come_on_top() -> None:
    env = dict(Torchrun().command(replace(PLAN, env=(("OMP_NUM_THREADS", "7"), ("EXTRA", "x")))).env)

    assert env["OMP_NUM_THREADS"] == "7"
    assert env["EXTRA"] == "x"


def test_several_nodes_are_refused_with_the_number() -> None:
    with pytest.raises(InvalidInput, match="the plan has 3"):
        Torchrun().command(replace(PLAN, nodes=3))


def test_the_rank_that_died_first_comes_before_those_that_torchrun_ended() -> None:
    assert Torchrun().rank_exits(SUMMARY) == (
        RankExit(rank=1, exit_code=None, signal=9),
        RankExit(rank=0, exit_code=None, signal=15),
    )


def test_an_exit_code_is_no_signal() -> None:
    exits = Torchrun().rank_exits(SUMMARY.replace("exitcode  : -9 ", "exitcode  : 40 "))

    assert exits[0] == RankExit(rank=1, exit_code=40, signal=None)


@pytest.mark.parametrize("text", ["", "all is well", "ChildFailedError", "[0]:\n  rank : 0\n  exitcode : 1\n"])
def test_a_log_without_a_summary_tells_nothing(text: str) -> None:
    assert Torchrun().rank_exits(text) == ()
