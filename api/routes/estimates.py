"""Estimates without running anything: what a job would try, and what the cost model expects of it."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query

from api.bodies import body_schema
from api.deps import HeavyDep, JobRequestDep, ServicesDep
from api.openapi import problems
from autotuner.domain.job import JobRequest
from autotuner.domain.result import EstimateReport

router = APIRouter(prefix="/estimates", tags=["estimates"])


@router.post(
    "",
    operation_id="estimate",
    summary="Rank a job's layouts by estimate",
    responses=problems(400, 413, 415, 422),
    openapi_extra=body_schema(JobRequest),
)
async def estimate(
    services: ServicesDep,
    heavy: HeavyDep,
    request: JobRequestDep,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many layouts to give, best first")] = 20,
) -> EstimateReport:
    """Also a check of a job before it is handed in: the same errors, and nothing is stored."""
    return await anyio.to_thread.run_sync(lambda: services.operations.estimate(request, limit=limit), limiter=heavy)
