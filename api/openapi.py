"""The OpenAPI document: the framework's, with our problem documents and the bodies that we parse ourselves.

Decides nothing about behaviour.  The result is committed as `tests/golden/openapi.json`, so that no change of the
interface goes unnoticed.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.problems import MEDIA_TYPE, Problem, title_of
from autotuner.domain.job import JobRequest

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}


def problems(*statuses: int) -> dict[int | str, Json]:
    """The `responses` of an endpoint that may refuse with these statuses."""
    return {status: {"description": title_of(status), "content": _PROBLEM} for status in statuses}


def install_openapi(app: FastAPI) -> None:
    """Let the application describe itself in full; built once, when first asked for."""

    def document() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = build_openapi(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def build_openapi(app: FastAPI) -> Json:
    """The document as plain JSON."""
    document: Json = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    schemas: Json = document.setdefault("components", {}).setdefault("schemas", {})
    # Neither appears in the signature of an endpoint: bodies are parsed by hand and problems by handlers.
    _, extra = models_json_schema(
        [(JobRequest, "validation"), (Problem, "validation")], ref_template=_SCHEMAS + "{model}"
    )
    for name, schema in extra["$defs"].items():
        schemas.setdefault(name, schema)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = {"description": "Any other refusal or failure", "content": _PROBLEM}
    return document
