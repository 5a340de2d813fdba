"""For load balancers and supervisors: is the process alive, can it serve."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter

from api.deps import ServicesDep
from api.openapi import problems
from api.routes.workers import ALIVE_SECONDS
from api.schemas import Health, Readiness
from autotuner.domain.errors import StorageUnavailable

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Is the process alive")
async def livez() -> Health:
    """Touches nothing but the process itself."""
    return Health(status="ok")


@router.get("/readyz", operation_id="readyz", summary="Can requests be served", responses=problems(503))
def readyz(services: ServicesDep) -> Readiness:
    """Reads from the database; 503 when it is away or has the tables of another version."""
    if not services.database.is_current():
        raise StorageUnavailable("the database has the tables of another version; run `autotuner db upgrade`")
    with services.database.read() as store:
        workers = store.workers.list(now=datetime.now(UTC), alive_within_seconds=ALIVE_SECONDS)
    return Readiness(status="ok", workers_alive=len(workers))
