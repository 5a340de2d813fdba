"""Reads a JSON body into a domain value, strictly.

The framework would parse with Python's json first (which accepts NaN and turns lists into what strict types refuse) and
validate second.  Here pydantic does both at once, so a body means the same as the same document in a file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from api.problems import InvalidBody, MalformedJson, WrongMediaType
from autotuner.domain.base import Value
from autotuner.domain.validation import FieldError, field_errors

V = TypeVar("V", bound=Value)

_MAX_ERRORS = 50


def json_body(model: type[V]) -> Callable[[Request], Awaitable[V]]:
    """A dependency that gives the body as `model`. Pair it with `body_schema(model)` so that OpenAPI knows of it."""

    async def read(request: Request) -> V:
        _require_json(request)
        return parse_body(model, await request.body())

    return read


def body_schema(model: type[Value]) -> dict[str, Any]:
    """The `openapi_extra` of an endpoint whose body is read by `json_body(model)`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def parse_body(model: type[V], body: bytes) -> V:
    """The value that `body` holds. Raises MalformedJson, InvalidBody."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if any(item["type"] == "json_invalid" for item in error.errors(include_input=False, include_url=False)):
            raise MalformedJson(f"the body is not JSON: {error.errors(include_input=False)[0]['msg']}") from None
        errors = tuple(_errors(error))
        detail = "; ".join(f"{e.field}: {e.message}" for e in errors[:3])
        more = len(errors) - 3
        raise InvalidBody(f"{detail}; and {more} more" if more > 0 else detail, errors=errors[:_MAX_ERRORS]) from None


def _errors(error: ValidationError) -> list[FieldError]:
    try:
        return field_errors(error)
    except ValueError:
        # Python refuses to print integers of more than 4,300 digits; then the value is left out of the sentence.
        items = error.errors(include_input=False, include_url=False)
        return [FieldError(field=".".join(map(str, item["loc"])), message=item["msg"]) for item in items]


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        given = media_type or "nothing"
        raise WrongMediaType(f"the body must be declared as application/json, not {given}; set Content-Type")
