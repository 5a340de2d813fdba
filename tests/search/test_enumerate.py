"""Enumeration against an independent brute force, its counts, and its refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.domain.capabilities import Capabilities
from autotuner.domain.errors import InvalidInput, NoFeasibleLayout
from autotuner.domain.job import TuningJob
from autotuner.domain.model import MoeSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.search.enumerate import enumerate_layouts, require_feasible
from autotuner.search.feasibility import check
from tests.support.search import EVERYTHING, able, make_cluster, make_job, make_model

LISTED: dict[str, Any] = {
    "tp": [1, 2, 3, 4, 8],
    "pp": [1, 2, 3, 4],
    "cp": [1, 2],
    "ep": [1, 2],
    "micro_batch_size": [1, 2, 3],
    "virtual_stages": [1, 2],
    "sequence_parallel": [False, True],
    "zero_stage": [0, 1],
    "recompute": ["none"],
}
NUM_LISTED = 5 * 4 * 2 * 2 * 3 * 2 * 2 * 2


def is_legal(job: TuningJob, able_to: Capabilities, **c: Any) -> bool:
    """The rules written a second time, one layout at a time, from the rules' published wording."""
    model, batch, seq_len = job.model, job.workload.global_batch_size, job.workload.seq_len
    tp, pp, dp, cp, ep, v = (c[name] for name in ("tp", "pp", "dp", "cp", "ep", "virtual_stages"))
    copies_kv = able_to.kv_heads_replicated and tp % model.num_kv_heads == 0
    num_experts = model.moe.num_experts if model.moe else 1
    conditions = [
        tp * pp * cp * dp == job.cluster.nodes * job.cluster.devices_per_node,
        model.num_heads % tp == 0,
        model.ffn_hidden_size % tp == 0,
        model.moe is None or model.moe.expert_ffn_hidden_size % tp == 0,
        model.num_kv_heads % tp == 0 or copies_kv,
        able_to.pads_vocabulary or model.vocab_size % tp == 0,
        pp * v <= model.num_layers,
        v == 1 or pp > 1,
        able_to.uneven_stages or model.num_layers % (pp * v) == 0,
        batch % (c["micro_batch_size"] * dp) == 0,
        v == 1 or (batch // c["micro_batch_size"] // dp) % pp == 0,
        cp == 1 or seq_len % (2 * cp) == 0,
        not c["sequence_parallel"] or (tp > 1 and (seq_len // cp) % tp == 0),
        c["zero_stage"] == 0 or dp * cp > 1,
        ep == 1 or (num_experts % ep == 0 and (dp * cp) % ep == 0),
    ]
    return all(conditions)


def brute_force(job: TuningJob, able_to: Capabilities) -> set[str]:
    world_size = job.cluster.nodes * job.cluster.devices_per_node
    found = set()
    for values in itertools.product(*LISTED.values()):
        layout = dict(zip(LISTED, values, strict=True))
        for dp in range(1, world_size + 1):
            if is_legal(job, able_to, dp=dp, **layout):
                found.add(ParallelConfig(dp=dp, **layout).key())
    return found


@st.composite
def shapes(draw: st.DrawFn) -> tuple[TuningJob, Capabilities]:
    heads = draw(st.sampled_from([2, 4, 6, 8, 12]))
    kv_heads = draw(st.sampled_from([d for d in range(1, heads + 1) if heads % d == 0]))
    moe = MoeSpec(
        num_experts=draw(st.sampled_from([2, 3, 4])),
        experts_per_token=1,
        expert_ffn_hidden_size=draw(st.sampled_from([36, 48])),
    )
    model = make_model(
        num_layers=draw(st.integers(1, 9)),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=8,
        ffn_hidden_size=draw(st.sampled_from([48, 64, 96, 100])),
        vocab_size=draw(st.sampled_from([510, 512])),
        moe=draw(st.sampled_from([None, moe])),
    )
    job = make_job(
        model=model,
        cluster=make_cluster(nodes=draw(st.integers(1, 3)), devices_per_node=draw(st.sampled_from([1, 2, 4, 6]))),
        space=LISTED,
        global_batch_size=draw(st.sampled_from([1, 6, 8, 12, 24, 30])),
        seq_len=draw(st.sampled_from([6, 16, 24])),
    )
    capabilities = able(
        uneven_stages=draw(st.booleans()),
        pads_vocabulary=draw(st.booleans()),
        kv_heads_replicated=draw(st.booleans()),
    )
    return job, capabilities


@settings(max_examples=20, deadline=None)
@given(shapes())
def test_finds_exactly_the_layouts_that_brute_force_finds(shape: tuple[TuningJob, Capabilities]) -> None:
    job, capabilities = shape
    enumeration = enumerate_layouts(job, capabilities=capabilities)
    keys = [config.key() for config in enumeration.candidates]
    assert len(keys) == len(set(keys))
    assert set(keys) == brute_force(job, capabilities)
    # Every combination is either a candidate or counted under one rule.
    assert len(keys) + sum(enumeration.rejections.values()) == NUM_LISTED
    assert [example.rule for example in enumeration.examples] == list(enumeration.rejections)


@settings(max_examples=15, deadline=None)
@given(shapes())
def test_a_single_layout_is_judged_as_in_the_enumeration(shape: tuple[TuningJob, Capabilities]) -> None:
    job, capabilities = shape
    enumeration = enumerate_layouts(job, capabilities=capabilities)
    for config in enumeration.candidates[::7]:
        assert check(config, job=job, capabilities=capabilities) is None
    for example in enumeration.examples:
        assert example.fix
        assert example.config_key


def test_derived_axes_give_what_a_hand_count_gives() -> None:
    # 4 devices, 4 heads, 4 layers, batch 4, a plain framework: (tp, pp, dp) with product 4 has 6 solutions, and the
    # micro-batch divides 4 / dp: dp 4 -> {1}; dp 2 (twice) -> {1, 2}; dp 1 (three times) -> {1, 2, 4}.  1 + 4 + 9.
    plain = able(max_virtual_stages=1, sequence_parallel=False, zero_stages=(0,), recompute=("none",))
    job = make_job(
        model=make_model(num_heads=4, num_layers=4), cluster=make_cluster(devices_per_node=4), global_batch_size=4
    )
    assert len(enumerate_layouts(job, capabilities=plain).candidates) == 14


def test_the_order_is_the_same_every_time() -> None:
    job = make_job()
    first = enumerate_layouts(job, capabilities=EVERYTHING)
    assert first == enumerate_layouts(job, capabilities=EVERYTHING)


def test_an_excluded_layout_is_counted_and_left_out() -> None:
    job = make_job(space={"excluded": ["tp8-pp1-dp1-mb1"]})
    enumeration = enumerate_layouts(job, capabilities=EVERYTHING)
    assert enumeration.rejections["excluded"] == 1
    assert "tp8-pp1-dp1-mb1" not in {config.key() for config in enumeration.candidates}


def test_an_absurd_space_is_refused_with_its_size() -> None:
    # 64 tp x 64 pp x 64 dp x 20 cp = 5,242,880 combinations of the listed values alone.
    many = list(range(1, 65))
    job = make_job(
        space={
            "tp": many,
            "pp": many,
            "dp": many,
            "cp": list(range(1, 21)),
            "micro_batch_size": [1],
            "virtual_stages": [1],
            "sequence_parallel": [False],
            "zero_stage": [0],
            "recompute": ["none"],
        }
    )
    with pytest.raises(InvalidInput, match="5242880 combinations") as caught:
        enumerate_layouts(job, capabilities=EVERYTHING)
    assert caught.value.field == "space"


def test_no_feasible_layout_names_the_nearest_legal_value() -> None:
    job = make_job(space={"tp": [3], "pp": [1], "dp": [2]}, cluster=make_cluster(devices_per_node=6))
    enumeration = enumerate_layouts(job, capabilities=EVERYTHING)
    with pytest.raises(
        NoFeasibleLayout, match="8 attention heads cannot be split evenly over tp 3: use tp 2"
    ) as caught:
        require_feasible(enumeration, job)
    assert caught.value.histogram == enumeration.rejections
    assert [example.rule for example in caught.value.examples] == ["heads_divisible_by_tp"]


def test_a_feasible_enumeration_passes() -> None:
    job = make_job()
    require_feasible(enumerate_layouts(job, capabilities=EVERYTHING), job)
