"""JobRequest: what a job file may hold, what is derived, and how mistakes in it are told."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from autotuner.domain.job import JobRequest, ModelPreset
from autotuner.domain.validation import one_sentence

MINIMAL = {
    "model": {"preset": "gpt2-350m"},
    "workload": {"global_batch_size": 64},
    "cluster": {"preset": "local"},
}


def test_only_model_batch_and_cluster_are_required():
    request = JobRequest.model_validate(MINIMAL)
    assert request.model == ModelPreset(preset="gpt2-350m")
    assert request.space.tp == "derive"
    assert request.strategy == "default"


def test_a_whole_model_and_cluster_may_stand_in_the_file():
    link = {"bandwidth_bytes_per_second": 1e9}
    device = {
        "name": "core",
        "kind": "cpu",
        "memory_bytes": 10**9,
        "peak_flops": {"fp32": 1e11},
        "memory_bandwidth_bytes_per_second": 1e10,
    }
    request = JobRequest.model_validate(
        {
            "model": {"num_layers": 2, "hidden_size": 64, "num_heads": 4},
            "workload": {"global_batch_size": 8, "seq_len": 32},
            "cluster": {"devices_per_node": 2, "device": device, "intra_node": link, "inter_node": link},
        }
    )
    assert request.cluster.world_size == 2


def test_it_survives_its_own_json():
    request = JobRequest.model_validate(MINIMAL | {"space": {"tp": [1, 2], "recompute": ["none"]}})
    assert JobRequest.model_validate(json.loads(json.dumps(request.as_json()))) == request


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": {"global_batch_size": -1}}, "workload.global_batch_size: Input should be greater than 0, not -1"),
        ({"workload": {"global_batch_size": 8, "optimizer": {"learning_rate": math.nan}}}, "learning_rate"),
        ({"workload": {}}, "workload.global_batch_size: field required"),
        ({"space": {"tp": [0]}}, "space.tp.0: Input should be greater than 0, not 0"),
        ({"space": {"tp": "all"}}, "space.tp"),
        ({"budget": {"max_trials": 10**9}}, "budget.max_trials"),
        ({"budget": {"max_seconds": math.inf}}, "budget.max_seconds"),
        ({"strategy": "magic"}, "strategy"),
        ({"colour": "red"}, "colour: no such field"),
        ({"model": {"preset": "GPT 2"}}, "model.preset"),
        ({"model": 7}, "model"),
        ({"launcher": {"kind": "local", "command": "rm"}}, "launcher.command: no such field"),
    ],
)
def test_mistakes_are_told_by_path(change, said):
    with pytest.raises(ValidationError) as caught:
        JobRequest.model_validate(MINIMAL | change)
    assert said in one_sentence(caught.value)
