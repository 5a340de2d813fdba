"""Puts the application together: routes, middleware, error handlers and the poller that feeds event streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import APIRouter, Depends, FastAPI

from api.assets import find_assets
from api.deps import AppState, current_caller
from api.errors import add_error_handlers
from api.hub import EventHub
from api.middleware import MAX_BODY_BYTES, BodyLimitMiddleware, EdgeMiddleware
from api.openapi import install_openapi
from api.routes import estimates, events, exports, health, jobs, pages, presets, trials, workers
from autotuner import __version__
from autotuner.wiring import Services

PREFIX = "/api/v1"
LOOPBACK = "127.0.0.1"
_HEAVY_REQUESTS = 2

_DESCRIPTION = (
    "Finds, by measuring, the fastest 3D-parallel layout of a GPT training run. Errors are RFC 9457 problem documents"
    " with a stable `code`."
)


def create_app(services: Services, *, bind_host: str = LOOPBACK) -> FastAPI:
    """The application. It does not close `services`: whoever built them does.

    `bind_host` is the address that it will listen on; without accounts, only a loopback address is served.
    """
    hub = EventHub(services.database)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with hub.running():
            yield

    app = FastAPI(
        title="autotuner",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.api = AppState(
        services=services,
        hub=hub,
        assets=find_assets(),
        bind_host=bind_host,
        heavy=anyio.CapacityLimiter(_HEAVY_REQUESTS),
    )
    app.include_router(_api_router())
    app.include_router(health.router)
    app.include_router(pages.router)
    add_error_handlers(app)
    install_openapi(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimitMiddleware, max_body_bytes=MAX_BODY_BYTES)
    app.add_middleware(EdgeMiddleware)
    return app


def _api_router() -> APIRouter:
    """Everything that shows or changes data, behind the one dependency that says who may."""
    router = APIRouter(prefix=PREFIX, dependencies=[Depends(current_caller)])
    for part in (jobs, trials, events, exports, estimates, presets, workers):
        router.include_router(part.router)
    return router
