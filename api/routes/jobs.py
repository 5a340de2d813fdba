"""Tuning jobs: hand in, list, look at, steer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query
from starlette.responses import Response

from api.bodies import body_schema
from api.cursors import decode_cursor, encode_cursor
from api.deps import CursorText, HeavyDep, JobRequestDep, ObjectId, PageSize, ServicesDep
from api.openapi import problems
from api.schemas import JobPage, JobView, job_view
from autotuner.domain.job import Job, JobRequest, JobState
from autotuner.domain.result import BestResult
from autotuner.storage.store import Store
from autotuner.wiring import Services

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.post(
    "",
    operation_id="create_job",
    summary="Hand in a tuning job",
    status_code=201,
    responses=problems(400, 413, 415, 422),
    openapi_extra=body_schema(JobRequest),
)
async def create_job(services: ServicesDep, heavy: HeavyDep, request: JobRequestDep, response: Response) -> JobView:
    """The job waits for a worker. Nothing is stored when no layout is feasible: the problem then says why."""
    job = await anyio.to_thread.run_sync(lambda: services.operations.submit(request), limiter=heavy)
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job_view(job, counts={}, best=None)


@router.get("", operation_id="list_jobs", summary="List jobs, newest first", responses=problems(400, 422))
def list_jobs(
    services: ServicesDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state")] = None,
    limit: PageSize = 50,
    cursor: CursorText = "",
) -> JobPage:
    """A page of jobs with their progress. Follow `next_cursor` until it is null."""
    filter_key = f"jobs:{state or ''}"
    before_id = decode_cursor(cursor, filter_key=filter_key) if cursor else None
    with services.database.read() as store:
        # One more than asked for tells whether there is another page.
        jobs = store.jobs.list(state=state, limit=limit + 1, before_id=before_id)
        views = _views(store, jobs[:limit])
    more = len(jobs) > limit
    return JobPage(items=views, next_cursor=encode_cursor(views[-1].id, filter_key=filter_key) if more else None)


@router.get("/{job_id}", operation_id="get_job", summary="One job", responses=problems(404, 422))
def get_job(services: ServicesDep, job_id: ObjectId) -> JobView:
    """The job in full: what was asked for, every derived value, its state and progress."""
    with services.database.read() as store:
        return _views(store, [store.jobs.get(job_id)])[0]


@router.delete(
    "/{job_id}",
    operation_id="delete_job",
    summary="Remove a finished job",
    status_code=204,
    responses=problems(404, 409, 422),
)
def delete_job(services: ServicesDep, job_id: ObjectId) -> None:
    """The job and all its trials are gone for good. A job that has not finished is refused: cancel it first."""
    services.operations.delete(job_id)


@router.post(
    "/{job_id}/cancel",
    operation_id="cancel_job",
    summary="End a job",
    status_code=202,
    responses=problems(404, 409, 422),
)
def cancel_job(services: ServicesDep, job_id: ObjectId) -> JobView:
    """The running trial is stopped; what was measured stays. Asking again is no error."""
    return _view(services, services.operations.cancel(job_id))


@router.post(
    "/{job_id}/pause",
    operation_id="pause_job",
    summary="Pause a job",
    status_code=202,
    responses=problems(404, 409, 422),
)
def pause_job(services: ServicesDep, job_id: ObjectId) -> JobView:
    """The running trial ends as it would; no other is started until the job is resumed."""
    return _view(services, services.operations.pause(job_id))


@router.post(
    "/{job_id}/resume",
    operation_id="resume_job",
    summary="Resume a paused job",
    status_code=202,
    responses=problems(404, 409, 422),
)
def resume_job(services: ServicesDep, job_id: ObjectId) -> JobView:
    """The job goes on where it was."""
    return _view(services, services.operations.resume(job_id))


@router.get(
    "/{job_id}/best",
    operation_id="get_best",
    summary="The best measured layout so far",
    responses=problems(404, 409, 422),
)
def get_best(services: ServicesDep, job_id: ObjectId) -> BestResult:
    """With what it is compared to, and how certain it is. 409 `not-ready` before the first measurement."""
    return services.operations.best(job_id)


def _view(services: Services, job: Job) -> JobView:
    with services.database.read() as store:
        return _views(store, [job])[0]


def _views(store: Store, jobs: Sequence[Job]) -> list[JobView]:
    ids = [job.id for job in jobs]
    counts, best = store.trials.counts_for(ids), store.trials.best_for(ids)
    return [job_view(job, counts=counts.get(job.id, {}), best=best.get(job.id)) for job in jobs]
