"""One bench for each test."""

from __future__ import annotations

import pytest

from tests.support.fake_executor import FakeExecutor
from tests.support.scheduling import Bench


def layout_seconds(layout) -> float:
    """Pipelines are slow, tensor parallel slower; the fastest is dp 4 with the largest micro-batch."""
    return 1.0 * layout.tp + 0.5 * layout.pp + 0.1 / layout.micro_batch_size


@pytest.fixture
def executor(tmp_path):
    return FakeExecutor(tmp_path / "runs", step_seconds=layout_seconds)


@pytest.fixture
def bench(tmp_path, executor):
    bench = Bench.make(tmp_path, executor)
    yield bench
    bench.database.close()
