"""Workers: the processes that measure, so that a page can say why nothing runs."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter

from api.deps import ServicesDep
from api.schemas import WorkerList

router = APIRouter(prefix="/workers", tags=["workers"])

# A worker gives a sign of life every few seconds; one that missed many of them is taken for dead.
ALIVE_SECONDS = 60.0


@router.get("", operation_id="list_workers", summary="Workers that are alive")
def list_workers(services: ServicesDep) -> WorkerList:
    """None means that jobs wait: start one with `autotuner worker`."""
    with services.database.read() as store:
        return WorkerList(items=store.workers.list(now=datetime.now(UTC), alive_within_seconds=ALIVE_SECONDS))
