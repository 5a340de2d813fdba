"""How domain values are written into JSON columns, and how old rows are read back.

The edges of the program (REST, files) are strict; our own rows are not, because an upgrade must not lock users out of
their data.  So a value is stored with the number of the schema it was written in, and reading drops fields that no
longer exist, fills in defaults for new ones, accepts equivalent types ("3" for 3), and applies upgrade steps for what
those rules cannot bridge.  Only data of a *newer* schema, or data that makes no sense at all, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from autotuner.domain.base import Value
from autotuner.domain.errors import StorageUnavailable

V = TypeVar("V", bound=Value)

SCHEMA = 1
"""Raise it when a stored value changes so that dropping and defaulting is not enough, and add a step below."""

SCHEMA_FIELD = "_schema"
# No domain field can have this name: pydantic refuses a leading underscore.

Step = Callable[[dict[str, Any]], dict[str, Any]]
Steps = Mapping[tuple[str, int], Step]

STEPS: Steps = {}
"""(class name, schema it reads) -> what turns that JSON into the next schema's."""


def pack(value: Value) -> dict[str, Any]:
    """The value as JSON with its schema number beside its own fields."""
    return {SCHEMA_FIELD: SCHEMA, **value.as_json()}


def unpack(kind: type[V], data: Mapping[str, Any], *, steps: Steps = STEPS, schema: int = SCHEMA) -> V:
    """The value of a stored JSON object. Raises StorageUnavailable if it is newer than `schema` or makes no sense."""
    body = dict(data)
    written_in = int(body.pop(SCHEMA_FIELD, 1))
    if written_in > schema:
        raise StorageUnavailable(
            f"a stored {kind.__name__} has schema {written_in} and this version reads up to {schema};"
            " upgrade autotuner to the version that wrote it"
        )
    for number in range(written_in, schema):
        step = steps.get((kind.__name__, number))
        body = body if step is None else step(body)
    try:
        return kind.model_validate(body, strict=False, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StorageUnavailable(
            f"a stored {kind.__name__} cannot be read: {where or 'the whole'}: {first['msg']}"
            f" ({error.error_count()} in all); restore the row from a backup or delete its job"
        ) from error
