"""Ids of rows: text that sorts by time of creation (UUID version 7, RFC 9562).

Decides the form of an id only.  The clock and the source of random bits are arguments, so that tests can fix both.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def new_id(*, clock: Callable[[], datetime] = _utc_now, random_bits: Callable[[int], int] = secrets.randbits) -> str:
    """A fresh id of 36 characters; of two ids the one from a later microsecond sorts last.

    RFC 9562 section 5.7 puts milliseconds into the first 48 bits; section 6.2 method 3 allows the fraction of the
    millisecond in the next 12, which keeps ids made within one millisecond in order without any state of ours.
    """
    microseconds = (clock() - _EPOCH) // _MICROSECOND
    milliseconds, rest = divmod(microseconds, 1000)
    fraction = rest * 4096 // 1000
    value = (milliseconds & (2**48 - 1)) << 80
    value |= 0x7 << 76 | fraction << 64
    value |= 0b10 << 62 | random_bits(62)
    return str(uuid.UUID(int=value))
