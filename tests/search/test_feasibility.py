"""Each rule refuses what breaks it, under its name, with its numbers and a way out that works."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from autotuner.domain.model import MoeSpec
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection, Rule
from autotuner.search.feasibility import RULES, check
from tests.support.search import EVERYTHING, able, make_cluster, make_job, make_model


def judged(config: ParallelConfig, *, capabilities: Any = EVERYTHING, **job: Any) -> Rejection:
    found = check(config, job=make_job(**job), capabilities=capabilities)
    assert found is not None
    assert found.config_key == config.key()
    return found


def test_every_rule_but_memory_is_in_the_table_once() -> None:
    assert sorted(rule.name for rule in RULES) == sorted(set(get_args(Rule)) - {"memory", "recompute_not_needed"})


def test_a_layout_must_fill_the_devices() -> None:
    found = judged(ParallelConfig(tp=2, pp=2, dp=1))
    assert (found.rule, found.fix) == ("world_size", "use dp 2")
    assert found.values["world_size"] == 8


def test_a_product_that_cannot_fill_the_devices_is_told_the_nearest_divisor() -> None:
    found = judged(ParallelConfig(tp=3, pp=2, dp=1))
    assert found.rule == "world_size"
    assert found.fix.endswith("divisor of 8; the nearest to 6 is 4")


def test_heads_are_split_evenly() -> None:
    found = judged(ParallelConfig(tp=8), model=make_model(num_heads=4, head_dim=16))
    assert (found.rule, found.fix) == ("heads_divisible_by_tp", "use tp 4")


@pytest.mark.parametrize(("copies", "rule"), [(False, "kv_heads_and_tp"), (True, None)])
def test_kv_heads_may_be_copied_only_where_the_framework_does_it(copies: bool, rule: str | None) -> None:
    job = make_job(model=make_model(num_kv_heads=2))
    found = check(ParallelConfig(tp=4, dp=2), job=job, capabilities=able(kv_heads_replicated=copies))
    assert (found.rule if found else None) == rule
    if found:
        assert found.fix == "use tp 2"


def test_ffn_is_split_evenly() -> None:
    found = judged(ParallelConfig(tp=8), model=make_model(ffn_hidden_size=100))
    # 100 = 12.5 x 8: 96 and 104 are equally near, and the smaller is named; 4 is the largest tp that divides 100.
    assert (found.rule, found.fix) == ("ffn_divisible_by_tp", "use tp 4, or a width of 96")


def test_the_width_of_an_expert_counts_too() -> None:
    moe = MoeSpec(num_experts=2, experts_per_token=1, expert_ffn_hidden_size=36)
    assert judged(ParallelConfig(tp=8), model=make_model(moe=moe)).rule == "ffn_divisible_by_tp"


def test_vocabulary_must_divide_only_where_it_is_not_padded() -> None:
    model = make_model(vocab_size=50_257)
    found = judged(ParallelConfig(tp=8), model=model, capabilities=able(pads_vocabulary=False))
    # 50,257 = 6,282 x 8 + 1, so the next multiple is 6,283 x 8 = 50,264.
    assert (found.rule, found.fix) == ("vocab_divisible_by_tp", "pad vocab_size to 50264")
    assert check(ParallelConfig(tp=8), job=make_job(model=model), capabilities=EVERYTHING) is None


def test_tp_beyond_a_node_must_be_asked_for() -> None:
    cluster = make_cluster(nodes=2, devices_per_node=4)
    config = ParallelConfig(tp=8)
    found = judged(config, cluster=cluster)
    assert (found.rule, found.values["devices_per_node"]) == ("tp_within_node", 4)
    assert found.fix.startswith("use tp 4")
    for asked in ({"space": {"tp": [8]}}, {"baseline": config}):
        assert check(config, job=make_job(cluster=cluster, **asked), capabilities=EVERYTHING) is None


def test_virtual_stages_need_a_pipeline() -> None:
    config = ParallelConfig.model_construct(tp=8, virtual_stages=2)
    assert judged(config).rule == "virtual_stages_need_pipeline"


def test_stages_are_at_most_the_layers() -> None:
    found = judged(ParallelConfig(pp=8), model=make_model(num_layers=5))
    assert (found.rule, found.fix) == ("stages_at_most_layers", "use pp 4")
    found = judged(ParallelConfig(pp=4, dp=2, virtual_stages=4))
    assert (found.rule, found.fix) == ("stages_at_most_layers", "use virtual_stages 2")


def test_equal_stages_are_needed_only_by_some_frameworks() -> None:
    model = make_model(num_layers=6)
    found = judged(ParallelConfig(pp=4, dp=2), model=model, capabilities=able(uneven_stages=False))
    assert (found.rule, found.fix) == ("layers_divisible_by_virtual_stages", "use pp 2")
    assert check(ParallelConfig(pp=4, dp=2), job=make_job(model=model), capabilities=EVERYTHING) is None


def test_the_batch_divides_into_micro_batches() -> None:
    found = judged(ParallelConfig(dp=8, micro_batch_size=3), global_batch_size=64)
    # A replica gets 64 / 8 = 8 sequences, whose divisors nearest to 3 are 2 and 4; 64 lies between 48 and 72.
    assert (found.rule, found.fix) == ("batch_divisible", "use micro_batch_size 2, or global_batch_size 72")


def test_interleaving_needs_a_multiple_of_pp_micro_batches() -> None:
    # 12 sequences in micro-batches of 2 are 6, no multiple of 4; micro-batch 1 gives 12 and 3 gives 4.
    config = ParallelConfig(tp=2, pp=4, virtual_stages=2, micro_batch_size=2)
    found = judged(config, global_batch_size=12)
    assert (found.rule, found.values["num_microbatches"]) == ("microbatches_for_interleaving", 6)
    assert found.fix == "use virtual_stages 1, or micro_batch_size 1"


def test_the_sequence_divides_over_cp_and_tp() -> None:
    found = judged(ParallelConfig(cp=4, dp=2), seq_len=100)
    assert (found.rule, found.fix) == ("seq_divisible_by_cp", "use cp 5, or seq_len 96")
    found = judged(ParallelConfig(tp=8, sequence_parallel=True), seq_len=100)
    assert (found.rule, found.fix) == ("seq_divisible_by_tp", "use sequence_parallel false, or seq_len 96")


def test_switches_need_what_they_split_over() -> None:
    assert judged(ParallelConfig(dp=8, sequence_parallel=True)).rule == "sequence_parallel_needs_tp"
    assert judged(ParallelConfig(tp=8, zero_stage=1)).rule == "zero_needs_dp"


def test_experts_are_dealt_to_replicas() -> None:
    moe = MoeSpec(num_experts=6, experts_per_token=1, expert_ffn_hidden_size=64)
    found = judged(ParallelConfig(tp=2, dp=4, ep=4), model=make_model(moe=moe))
    assert (found.rule, found.fix) == ("experts_divisible_by_ep", "use ep 2")


@pytest.mark.parametrize(
    ("capabilities", "config", "what"),
    [
        ({"precisions": ("fp32",)}, {"tp": 8}, "precision bf16"),
        ({"norms": ("rms",)}, {"tp": 8}, "norm layer"),
        ({"positions": ("rope",)}, {"tp": 8}, "position learned"),
        ({"zero_stages": (0, 1)}, {"dp": 8, "zero_stage": 3}, "zero_stage 3"),
        ({"sequence_parallel": False}, {"tp": 8, "sequence_parallel": True}, "sequence_parallel true"),
        ({"recompute": ("none",)}, {"tp": 8, "recompute": "full"}, "recompute full"),
        ({"max_context_parallel": 1}, {"tp": 4, "cp": 2}, "cp 2"),
        ({"max_expert_parallel": 1}, {"dp": 8, "ep": 2}, "ep 2"),
        ({"max_virtual_stages": 1}, {"pp": 4, "dp": 2, "virtual_stages": 2}, "virtual_stages 2"),
    ],
)
def test_what_a_framework_cannot_do_is_named(capabilities: dict[str, Any], config: dict[str, Any], what: str) -> None:
    found = judged(ParallelConfig(**config), capabilities=able(**capabilities))
    assert found.rule == "not_supported_by_framework"
    assert found.message == f"the framework everything does not support {what}"
    assert found.fix.startswith("use ")


@pytest.mark.parametrize(
    ("capabilities", "model"),
    [
        ({"grouped_query_attention": False}, {"num_kv_heads": 4}),
        ({"gated_ffn": False}, {"gated_ffn": True}),
        ({"moe": False}, {"moe": MoeSpec(num_experts=2, experts_per_token=1, expert_ffn_hidden_size=64)}),
    ],
)
def test_an_architecture_that_a_framework_lacks_is_refused(capabilities: dict[str, Any], model: dict[str, Any]) -> None:
    found = judged(ParallelConfig(dp=8), model=make_model(**model), capabilities=able(**capabilities))
    assert found.rule == "not_supported_by_framework"
