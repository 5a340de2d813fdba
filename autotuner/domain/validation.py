"""Turns a pydantic ValidationError into the few sentences a user needs: where, what was wrong, what was given."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from autotuner.domain.base import Value
from autotuner.domain.errors import InvalidInput

V = TypeVar("V", bound=Value)

_MAX_SHOWN = 80


class FieldError(Value):
    """One wrong field: `field` is its dotted path in the document the user wrote."""

    field: str
    message: str


def field_errors(error: ValidationError) -> list[FieldError]:
    """One entry for each wrong field; the branches of a union ("a list or 'derive'") are told as one."""
    found: dict[str, FieldError] = {}
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":
            continue  # a value that was to follow from a wrong one, which has its own line
        path = ".".join(_user_path(item["loc"]))
        text = _sentence(item["msg"], item.get("input"), kind=item["type"])
        # The first branch of a union is the one with the useful message; a literal branch adds only noise.
        found.setdefault(path, FieldError(field=path or "(document)", message=text))
    # "the list is too short" follows from a wrong item, which has its own line.
    return [e for path, e in found.items() if not any(other.startswith(f"{path}.") for other in found)]


def one_sentence(error: ValidationError) -> str:
    """All wrong fields in one line for a terminal."""
    return "; ".join(f"{e.field}: {e.message}" for e in field_errors(error))


def _user_path(parts: tuple[int | str, ...]) -> list[str]:
    """The path without what pydantic adds: the branch of a union, or the body of a request."""
    path: list[str] = []
    previous = ""
    for part in map(str, parts):
        is_tag = part in {"spec", "preset"} and previous in {"model", "cluster"}
        if not is_tag and "[" not in part and not (part == "body" and not path):
            path.append(part)
        previous = part
    return path


def _sentence(message: str, given: Any, *, kind: str) -> str:
    text = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return "no such field"
    if kind in {"missing", "value_error"} or isinstance(given, dict | list):
        return text[0].lower() + text[1:] if kind == "missing" else text
    shown = repr(given)
    return f"{text}, not {shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + '...'}"


def validated(kind: type[V], data: dict[str, Any]) -> V:
    """A value from plain data. Raises InvalidInput with one sentence for all wrong fields."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(one_sentence(error)) from None
