"""Ids: UUID version 7 that sort by time."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

from autotuner.storage.ids import new_id


def test_an_id_holds_its_time_as_rfc_9562_says() -> None:
    # The example of RFC 9562, appendix A.6: 2022-02-22 14:22:22.00 -05:00 is 0x017F22E279B0 milliseconds.
    when = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    text = new_id(clock=lambda: when, random_bits=lambda bits: 2**bits - 1)
    # Version 7 with fraction 0; the variant's two bits 10 and 62 ones give b, then f.
    assert text == "017f22e2-79b0-7000-bfff-ffffffffffff"
    assert (uuid.UUID(text).version, uuid.UUID(text).variant) == (7, uuid.RFC_4122)


def test_ids_sort_by_time_down_to_the_microsecond() -> None:
    source = random.Random(1)  # noqa: S311 - fixed on purpose
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(microseconds=n) for n in (0, 1, 2, 999, 1000, 1001, 10**6, 10**12)]
    ids = [new_id(clock=lambda when=when: when, random_bits=source.getrandbits) for when in times]
    assert ids == sorted(ids)


def test_ids_of_one_moment_differ() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert len({new_id(clock=lambda: when) for _ in range(1000)}) == 1000
