from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.estimator import Estimator
from autotuner.costmodel.pipeline import bubble_fraction, pipeline_seconds
from autotuner.costmodel.split import representative_stages
from autotuner.domain.errors import InvalidInput
from autotuner.domain.parallel import ParallelConfig
from tests.support.costmodel import GPT2, SMALL, arrays, round_cluster
from trials.stages import stage_sizes


def _pipeline(*, m: int, p: int, v: int, times: list[float]):
    return pipeline_seconds(
        microbatches=m,
        pp=p,
        virtual_stages=v,
        slowest=np.array([max(times)]),
        all_stages=np.array([sum(times)]),
    )


def test_equal_stages_give_the_published_bubble():
    # p 4, m 8: (p - 1)/m = 3/8; two virtual stages halve it.
    plain = _pipeline(m=8, p=4, v=1, times=[2.0] * 4)
    assert (plain.busy[0], plain.bubble[0]) == (16.0, 6.0)
    assert bubble_fraction(bubble=plain.bubble, busy=plain.busy)[0] == 3 / 8
    interleaved = _pipeline(m=8, p=4, v=2, times=[2.0] * 4)
    assert bubble_fraction(bubble=interleaved.bubble, busy=interleaved.busy)[0] == 3 / 16


def test_the_slowest_stage_sets_the_pace_and_the_others_fill_the_pipeline():
    # 10 micro-batches at 3 s, and 1 + 1 + 1 s to fill and drain.
    uneven = _pipeline(m=10, p=4, v=1, times=[1.0, 1.0, 1.0, 3.0])
    assert (uneven.busy[0], uneven.bubble[0], uneven.average_busy[0]) == (30.0, 3.0, 15.0)


@pytest.mark.parametrize("layers", [7, 12, 30, 96])
def test_second_stage_holds_as_many_layers_as_any_middle_one(layers: int):
    for pp in range(1, layers + 1):
        for virtual in range(1, layers // pp + 1):
            if pp == 1 and virtual > 1:
                continue
            sizes = stage_sizes(layers, pp=pp, virtual_stages=virtual)
            columns = representative_stages(
                arrays(ParallelConfig(pp=pp, virtual_stages=virtual)), num_layers=layers
            ).layers[0]
            assert columns.tolist() == [sizes[0], sizes[min(1, pp - 1)], sizes[-1]]
            assert max(sizes[1:-1], default=0) <= columns[1]


def test_more_chunks_than_layers_are_refused_with_the_limit():
    with pytest.raises(InvalidInput, match="at most 12, not 16 x 1"):
        Estimator(GPT2, SMALL, round_cluster(devices_per_node=16)).evaluate([ParallelConfig(pp=16)])
