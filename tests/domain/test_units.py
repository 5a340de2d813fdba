"""Numbers for people."""

from __future__ import annotations

import pytest

from autotuner.domain.units import format_bytes, format_count, format_seconds


@pytest.mark.parametrize(("value", "text"), [(3 * 2**30, "3.00 GiB"), (1536, "1.50 KiB"), (12, "12 B")])
def test_bytes(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0000123, "12 us"), (0.0123, "12.3 ms"), (1.5, "1.50 s"), (600, "10.0 min"), (7200, "2.0 h")],
)
def test_seconds(value, text):
    assert format_seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.3e9, "1.30B"), (124_439_808, "124.44M"), (7, "7"), (1e12, "1.00T")])
def test_counts(value, text):
    assert format_count(value) == text
