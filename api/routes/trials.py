"""Trials: the layouts that were chosen to be measured, and the logs of their ranks."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse

from api.cursors import decode_cursor, encode_cursor
from api.deps import CursorText, ObjectId, ServicesDep
from api.openapi import problems
from api.schemas import TrialPage, TrialView, trial_view

router = APIRouter(tags=["trials"])

_MAX_LOG_BYTES = 1024 * 1024
# Terminal escapes (colours, cursor movement, window titles) and other control characters, but tab and line breaks.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b-\x1f\x7f]")

TrialPageSize = Annotated[int, Query(ge=1, le=1000, description="Items on a page")]


@router.get(
    "/jobs/{job_id}/trials",
    operation_id="list_trials",
    summary="List a job's trials",
    responses=problems(400, 404, 422),
)
def list_trials(
    services: ServicesDep, job_id: ObjectId, limit: TrialPageSize = 1000, cursor: CursorText = ""
) -> TrialPage:
    """Trials by number, each with its estimate beside its measurement or failure."""
    filter_key = f"trials:{job_id}"
    after = decode_cursor(cursor, filter_key=filter_key) if cursor else ""
    with services.database.read() as store:
        store.jobs.get(job_id)
        trials = store.trials.list(job_id)
    start = next((i + 1 for i, trial in enumerate(trials) if trial.id == after), 0)
    items = [trial_view(trial) for trial in trials[start : start + limit]]
    more = start + limit < len(trials)
    return TrialPage(items=items, next_cursor=encode_cursor(items[-1].id, filter_key=filter_key) if more else None)


@router.get("/trials/{trial_id}", operation_id="get_trial", summary="One trial", responses=problems(404, 422))
def get_trial(services: ServicesDep, trial_id: ObjectId) -> TrialView:
    """The layout, why it was chosen, what was predicted and what was measured."""
    with services.database.read() as store:
        return trial_view(store.trials.get(trial_id))


@router.get(
    "/trials/{trial_id}/logs",
    operation_id="get_trial_log",
    summary="The end of a rank's log",
    response_class=PlainTextResponse,
    responses=problems(404, 422),
)
def get_trial_log(
    services: ServicesDep,
    trial_id: ObjectId,
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    max_bytes: Annotated[int, Query(ge=1, le=_MAX_LOG_BYTES)] = 65_536,
) -> str:
    """Plain text of the latest run; terminal escapes are taken out."""
    text = services.operations.log_tail(trial_id, rank=rank, max_bytes=max_bytes)
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))
