"""Turns a pydantic ValidationError into the few sentences a user needs: where, what was wrong, what was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotuner.domain.base import Value

if TYPE_CHECKING:
    from pydantic import ValidationError

_MAX_SHOWN = 80


class FieldError(Value):
    """One wrong field: `field` is its dotted path in the document the user wrote."""

    field: str
    message: str


def field_errors(error: ValidationError) -> list[FieldError]:
    """One entry for each wrong field; the branches of a union ("a list or 'derive'") are told as one."""
    found: dict[str, FieldError] = {}
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"] if not _is_branch(part))
        text = _sentence(item["msg"], item.get("input"), kind=item["type"])
        # The first branch of a union is the one with the useful message; a literal branch adds only noise.
        found.setdefault(path, FieldError(field=path or "(document)", message=text))
    # "the list is too short" follows from a wrong item, which has its own line.
    return [e for path, e in found.items() if not any(other.startswith(f"{path}.") for other in found)]


def one_sentence(error: ValidationError) -> str:
    """All wrong fields in one line for a terminal."""
    return "; ".join(f"{e.field}: {e.message}" for e in field_errors(error))


def _is_branch(part: int | str) -> bool:
    text = str(part)
    return text in {"spec", "preset", "body"} or "[" in text


def _sentence(message: str, given: Any, *, kind: str) -> str:
    text = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return "no such field"
    if kind in {"missing", "value_error"} or isinstance(given, dict | list):
        return text[0].lower() + text[1:] if kind == "missing" else text
    shown = repr(given)
    return f"{text}, not {shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + '...'}"
