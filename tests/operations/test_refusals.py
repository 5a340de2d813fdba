"""What cannot be tuned is refused with the rule, the numbers and the nearest legal value, and nothing is stored."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import InvalidInput, LaunchRefused, NoFeasibleLayout, NotFound, UnknownPreset
from tests.support.scheduling import MACHINE, request

MODEL = {"num_layers": 4, "hidden_size": 64, "num_heads": 4, "vocab_size": 256, "max_seq_len": 32}


def _nothing_stored(bench):
    with bench.database.read() as store:
        return store.jobs.list(state=None, limit=10, before_id=None) == [] and store.events.last_id() == 0


@pytest.mark.parametrize(
    ("changes", "rule", "said"),
    [
        # 6 sequences over dp 4: 4 and 8 are equally near, and 4 is named
        (
            {"space": {"dp": [4], "tp": [1]}, "workload": {"global_batch_size": 6}},
            "batch_divisible",
            ("6", "dp 4", "use global_batch_size 4"),
        ),
        (
            {"model": MODEL | {"num_heads": 3, "hidden_size": 96}, "space": {"tp": [2]}},
            "heads_divisible_by_tp",
            ("3", "2"),
        ),
        ({"model": MODEL | {"num_layers": 2}, "space": {"pp": [4]}}, "stages_at_most_layers", ("4", "2")),
        ({"space": {"tp": [3]}}, "world_size", ("3", "4")),
        (
            {"workload": {"global_batch_size": 16, "precision": "fp16"}},
            "not_supported_by_framework",
            ("fp16", "fp32"),
        ),
    ],
)
def test_an_infeasible_space_is_refused_with_its_numbers(bench, changes, rule, said):
    with pytest.raises(NoFeasibleLayout) as caught:
        bench.operations.submit(request(**changes))
    assert rule in caught.value.histogram
    example = next(e for e in caught.value.examples if e.rule == rule)
    text = f"{example.message} {example.fix}"
    assert all(part in text for part in said), text
    assert _nothing_stored(bench)


def test_a_model_that_fits_no_device_is_refused_by_memory(bench):
    link = {"bandwidth_bytes_per_second": 1e9}
    device = {
        "name": "thimble",
        "kind": "cpu",
        "memory_bytes": 1_000_000,
        "peak_flops": {"fp32": 1e9},
        "memory_bandwidth_bytes_per_second": 1e9,
    }
    cluster = {"devices_per_node": 2, "device": device, "intra_node": link, "inter_node": link}
    with pytest.raises(NoFeasibleLayout) as caught:
        bench.operations.submit(request(cluster=cluster))
    assert caught.value.histogram["memory"] > 0
    assert _nothing_stored(bench)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"model": {"preset": "gpt-tinny"}}, UnknownPreset, "gpt-tiny"),
        ({"cluster": {"preset": "moon-base"}}, UnknownPreset, "moon-base"),
        ({"cluster": {"preset": "local", "nodes": 2}}, InvalidInput, "leave nodes out"),
        ({"framework": "megatron-ml"}, InvalidInput, "megatron-ml"),
        ({"workload": {"global_batch_size": 8, "seq_len": 64}}, InvalidInput, "use at most 32"),
        ({"baseline": {"tp": 3}}, InvalidInput, "baseline"),
        ({"baseline": {"tp": 2, "micro_batch_size": 5}}, InvalidInput, "baseline"),
        ({"launcher": {"kind": "slurm"}}, LaunchRefused, "slurm"),
        (
            {"cluster": {"preset": "dgx-a100-superpod"}, "workload": {"global_batch_size": 1024}},
            LaunchRefused,
            "devices",
        ),
        ({"cluster": {"preset": "local", "devices_per_node": 64}}, LaunchRefused, "up to 8"),
    ],
)
def test_what_cannot_be_meant_or_launched_is_refused(bench, changes, error, said):
    with pytest.raises(error) as caught:
        bench.operations.submit(request(**changes))
    assert said in str(caught.value)
    assert _nothing_stored(bench)


def test_devices_that_claim_more_memory_than_the_machine_has_are_refused(bench):
    link = {"bandwidth_bytes_per_second": 1e9}
    device = {
        "name": "core",
        "kind": "cpu",
        "memory_bytes": MACHINE.total_memory_bytes,
        "peak_flops": {"fp32": 1e9},
        "memory_bandwidth_bytes_per_second": 1e9,
    }
    cluster = {"devices_per_node": 2, "device": device, "intra_node": link, "inter_node": link}
    with pytest.raises(LaunchRefused, match=f"use memory_bytes up to {MACHINE.total_memory_bytes // 2}"):
        bench.operations.submit(request(cluster=cluster))


def test_what_does_not_exist_is_not_found(bench):
    for ask in (bench.operations.cancel, bench.operations.best, bench.operations.delete):
        with pytest.raises(NotFound):
            ask("no-such-job")
    with pytest.raises(NotFound):
        bench.operations.log_tail("no-such-trial", rank=0, max_bytes=100)
