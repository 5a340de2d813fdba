"""One bench for each test; nothing is run here."""

from __future__ import annotations

import pytest

from tests.support.fake_executor import FakeExecutor
from tests.support.scheduling import Bench


@pytest.fixture
def bench(tmp_path):
    bench = Bench.make(tmp_path, FakeExecutor(tmp_path / "runs", step_seconds=lambda _layout: 1.0))
    yield bench
    bench.database.close()
