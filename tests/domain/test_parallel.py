"""ParallelConfig: derived sizes, batch arithmetic and the key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autotuner.domain.parallel import ParallelConfig


def test_world_size_and_microbatches_of_the_published_gpt3_layout():
    config = ParallelConfig(tp=8, pp=16, dp=8, micro_batch_size=1)
    assert config.world_size == 1024
    # 1536 / (1 x 8) = 192
    assert config.num_microbatches(1536) == 192
    assert config.schedule == "1f1b"


def test_a_batch_that_does_not_divide_is_told_with_its_numbers():
    with pytest.raises(ValueError, match=r"10 is not divisible by micro_batch_size 4 x dp 2"):
        ParallelConfig(dp=2, micro_batch_size=4).num_microbatches(10)


def test_virtual_stages_without_a_pipeline_are_refused():
    with pytest.raises(ValidationError, match="needs pp of at least 2"):
        ParallelConfig(virtual_stages=2)


def test_key_names_only_what_is_switched_on():
    assert ParallelConfig(tp=2, micro_batch_size=4).key() == "tp2-pp1-dp1-mb4"
    full = ParallelConfig(tp=2, pp=2, virtual_stages=2, sequence_parallel=True, zero_stage=1, recompute="full")
    assert full.key() == "tp2-pp2-dp1-mb1-vs2-sp-z1-rc-full"


_configs = st.builds(
    ParallelConfig,
    tp=st.integers(1, 8),
    pp=st.integers(2, 8),
    dp=st.integers(1, 8),
    virtual_stages=st.integers(1, 3),
    micro_batch_size=st.integers(1, 8),
    sequence_parallel=st.booleans(),
    zero_stage=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
    overlap_grad_reduce=st.booleans(),
)


@given(_configs, _configs)
def test_two_layouts_share_a_key_only_if_they_are_equal(one, other):
    assert (one.key() == other.key()) == (one == other)
