"""Opaque cursors of listings: where the next page starts, and for which filter that holds.

A cursor is checked, not trusted: one made up, cut off or taken from another listing is refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from pydantic import Field, ValidationError

from api.problems import InvalidCursor
from autotuner.domain.base import Value


class Cursor(Value):
    """The page after the object `before`, in a listing filtered by `filter`."""

    before: Annotated[str, Field(min_length=1, max_length=200)]
    filter: Annotated[str, Field(max_length=200)]


def encode_cursor(before: str, *, filter_key: str) -> str:
    """A cursor as text that is safe in a URL."""
    body = Cursor(before=before, filter=filter_key).model_dump_json().encode()
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def decode_cursor(text: str, *, filter_key: str) -> str:
    """The id the page starts after. Raises InvalidCursor."""
    try:
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = Cursor.model_validate_json(body)
    except (binascii.Error, ValidationError, ValueError):
        raise InvalidCursor("this cursor was not handed out here; leave it out to start at the first page") from None
    if cursor.filter != filter_key:
        raise InvalidCursor("this cursor belongs to a listing with another filter; leave it out to start again")
    return cursor.before
