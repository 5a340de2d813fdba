"""The base class of every domain value and the few field types that all of them share.

Decides how values are validated: frozen, unknown fields refused, strict types, finite numbers.  The same classes
are REST bodies and JSON columns, so a rule stated here holds at every edge of the program.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict

Derived = Literal["derive"]
"""What a user writes (or leaves out) where the tuner is to work the value out."""

DERIVE: Derived = "derive"

# A name is shown in pages, logs, file names and scripts: control characters and line breaks never belong in it.
Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
Slug = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]

# Upper bounds keep products of dimensions far below 2**63, so that numpy's integers never wrap around.
Count = Annotated[int, Field(gt=0, le=100_000)]
Dimension = Annotated[int, Field(gt=0, le=1_048_576)]
BatchSize = Annotated[int, Field(gt=0, le=1_048_576)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000.0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0, le=1e24)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e24)]

# JSON has lists only; a strict tuple would refuse them.  The items stay strict.
Lax = Strict(strict=False)


class Value(BaseModel):
    """A frozen value with strict types: two equal values are interchangeable."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="null",
        validate_default=False,
        # `model` is a word of this field ("the model being trained"); pydantic reserves the prefix for itself.
        protected_namespaces=(),
    )

    def as_json(self) -> dict[str, Any]:
        """The value as plain JSON types, for a column, a file or a response body."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read back what `as_json` gave. Raises pydantic.ValidationError."""
        return cls.model_validate(data)
