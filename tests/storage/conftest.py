"""A fresh database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.storage.database import Database
from tests.support.storage import sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(sqlite_url(tmp_path)) as opened:
        yield opened
