from __future__ import annotations

import re

import pytest

from autotuner.costmodel.params import count_parameters
from autotuner.domain.errors import UnknownPreset
from autotuner.presets.loader import cluster_preset, device_preset, model_preset, preset_names, preset_source

SCALE = {"m": 1e6, "b": 1e9, "t": 1e12}
NAMED_BY_SIZE = [name for name in preset_names("models") if re.search(r"\d[mbt]$", name)]


@pytest.mark.parametrize("name", NAMED_BY_SIZE)
def test_a_model_has_as_many_parameters_as_its_name_says(name: str):
    number, unit = re.fullmatch(r".*-([\d.]+)([mbt])", name).groups()
    # Names are rounded by their authors: "1.5b" has 1.56 and Llama's "7b" 6.74 billion parameters.
    assert count_parameters(model_preset(name)) == pytest.approx(float(number) * SCALE[unit], rel=0.045)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-124m", 124_439_808),
        ("gpt2-1.5b", 1_557_611_200),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        # 4 x (12 x 128^2 + 13 x 128) + 256 x 128 + 128 x 128 + 2 x 128
        ("gpt-tiny", 842_496),
    ],
)
def test_released_models_have_exactly_their_parameters(name: str, parameters: int):
    assert count_parameters(model_preset(name)) == parameters


def test_every_preset_loads_and_names_its_source():
    loaders = {"models": model_preset, "devices": device_preset, "clusters": cluster_preset}
    for kind, load in loaders.items():
        assert len(preset_names(kind)) >= 5
        for name in preset_names(kind):
            assert load(name).name == name
            assert len(preset_source(kind, name=name)) > 20


def test_units_become_the_domains():
    device = device_preset("a100-80gb")
    assert device.memory_bytes == int(79.2 * 2**30)
    assert device.peak_flops.bf16 == 312e12
    assert device.memory_bandwidth_bytes_per_second == 2.039e12
    cluster = cluster_preset("dgx-h100-superpod")
    assert cluster.intra_node.bandwidth_bytes_per_second == 450e9
    assert cluster.inter_node.latency_seconds == pytest.approx(6e-6)
    assert cluster.constants.context_bytes == 3 * 2**30


def test_a_cluster_is_resized_where_a_size_is_given():
    assert cluster_preset("dgx-a100-superpod").world_size == 16 * 8
    assert cluster_preset("dgx-a100-superpod", nodes=128).world_size == 1024
    assert cluster_preset("node-8x-a100", devices_per_node=4).world_size == 4


def test_a_core_has_no_peak_so_that_utilisation_stays_unknown():
    assert device_preset("cpu-core").peak_flops.fp32 is None


@pytest.mark.parametrize(
    ("name", "nearest"), [("gpt2-125m", "gpt2-124m"), ("LLAMA-2-7B", "llama-2-7b"), ("../loader", "gpt")]
)
def test_an_unknown_name_is_answered_with_names_that_exist(name: str, nearest: str):
    with pytest.raises(UnknownPreset, match=re.escape(nearest)) as refusal:
        model_preset(name)
    assert refusal.value.field == "model.preset"


def test_a_misspelt_local_is_recognised_among_clusters():
    with pytest.raises(UnknownPreset, match="local"):
        cluster_preset("locale")
