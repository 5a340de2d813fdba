"""Launch scripts: the files that start a job's best layout, as a zip or as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api.deps import ObjectId, ServicesDep
from api.openapi import problems
from api.schemas import ExportedBundle, ExportedFile
from autotuner.domain.base import DERIVE, Derived
from autotuner.export.base import Bundle

router = APIRouter(tags=["exports"])

_ZIP: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The files",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}

FrameworkName = Annotated[str, Query(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Whose arguments are written")]
LauncherName = Annotated[str, Query(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="How processes are started")]
StepCount = Annotated[
    Annotated[int, Field(ge=1, le=1_000_000_000)] | Derived,
    Query(description="Training steps that the script runs; `derive`: as many as show that it works"),
]


@router.get(
    "/jobs/{job_id}/export",
    operation_id="export_best",
    summary="The launch files of the best layout",
    response_model=ExportedBundle,
    responses={**_ZIP, **problems(404, 409, 422)},
)
def export_best(
    *,
    services: ServicesDep,
    job_id: ObjectId,
    framework: FrameworkName = "bundled",
    launcher: LauncherName = "torchrun",
    steps: StepCount = DERIVE,
    format: Literal["zip", "json"] = "zip",  # noqa: A002 - the name in the address
) -> Response:
    """A zip by default; `format=json` gives the same files as text. 409 `not-ready` before the first measurement."""
    bundle = services.operations.export(job_id, framework=framework, launcher=launcher, steps=steps)
    name = f"{job_id}-{framework}-{launcher}"
    if format == "json":
        return Response(_as_text(bundle, name=name).model_dump_json(), media_type="application/json")
    return Response(
        bundle.zip_bytes(),
        media_type="application/zip",
        headers={"Content-Disposition": f'attachment; filename="{name}.zip"'},
    )


def _as_text(bundle: Bundle, *, name: str) -> ExportedBundle:
    files = [ExportedFile(path=f.path, text=f.text, executable=f.executable) for f in bundle.files]
    return ExportedBundle(name=name, files=files)
