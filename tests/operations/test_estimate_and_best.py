"""Estimates without a job, the answer of a job, and its export."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import InvalidInput, NotReady
from tests.support.scheduling import request


def test_an_estimate_ranks_every_candidate_and_counts_the_rest(bench):
    report = bench.operations.estimate(request(), limit=5)
    assert len(report.ranked) == 5
    assert report.candidates > 5
    assert report.rejections["world_size"] > 0
    expected = [line.step_seconds / line.probability_fits for line in report.ranked]
    assert expected == sorted(expected)
    # embeddings 256 x 64 + positions 32 x 64, 4 layers of 12 h^2 + 13 h, final norm 2 h
    assert report.parameters == 256 * 64 + 32 * 64 + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    line = report.ranked[0]
    assert sum(line.time.values()) == pytest.approx(line.step_seconds)
    assert sum(line.memory.values()) == pytest.approx(line.memory_bytes)


def test_precision_and_sequence_length_are_derived(bench):
    spec = bench.operations.resolve(request(workload={"global_batch_size": 16}))
    assert (spec.workload.seq_len, spec.workload.precision) == (32, "fp32")


def test_a_job_without_a_measurement_has_no_best(bench):
    job = bench.operations.submit(request())
    with pytest.raises(NotReady, match="no measured layout yet"):
        bench.operations.best(job.id)
    with pytest.raises(NotReady):
        bench.operations.export(job.id, framework="bundled", launcher="torchrun", steps="derive")


def test_equal_layouts_are_called_equal(bench):
    job = bench.operations.submit(request())
    bench.drive()
    best = bench.operations.best(job.id)
    assert best.runner_up is not None
    assert "treat the two as equal" in best.certainty


def test_the_export_holds_the_winner_and_only_known_targets(bench):
    job = bench.operations.submit(request())
    bench.drive()
    best = bench.operations.best(job.id)
    bundle = bench.operations.export(job.id, framework="bundled", launcher="torchrun", steps=7)
    files = {file.path: file for file in bundle.files}
    assert files["launch.sh"].executable
    assert f'"tp": {best.config.tp}' in files["request.json"].text
    assert '"measured": 7' in files["request.json"].text
    for wrong in ({"framework": "nemo", "launcher": "torchrun"}, {"framework": "bundled", "launcher": "slurm"}):
        with pytest.raises(InvalidInput, match="known"):
            bench.operations.export(job.id, steps=7, **wrong)
