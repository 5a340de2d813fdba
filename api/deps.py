"""Every dependency of the endpoints, each one an `Annotated` alias.

Authentication is `CallerDep` and nothing else: the API's router requires it, so no endpoint can forget it.  No
dependency holds a database session, because a stream would pin it until it ends: endpoints open one while they read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import anyio
from fastapi import Depends, Path, Query
from starlette.requests import Request

from api.assets import Asset
from api.bodies import json_body
from api.hub import EventHub
from api.problems import Forbidden, Unauthenticated
from autotuner.domain.job import JobRequest
from autotuner.wiring import Services

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """What one application holds; kept on `app.state.api`."""

    services: Services
    hub: EventHub
    assets: Mapping[str, Asset]
    bind_host: str
    # Enumerating and estimating takes a core for up to seconds: a few at a time, and never all request threads.
    heavy: anyio.CapacityLimiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. For now there is one: the person at this machine."""

    name: str


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def app_state(request: Request) -> AppState:
    """What the application was built with."""
    state: AppState = request.app.state.api
    return state


async def services_of(request: Request) -> Services:
    """Settings, database and use cases."""
    return app_state(request).services


async def hub_of(request: Request) -> EventHub:
    """The source of live events."""
    return app_state(request).hub


async def heavy_of(request: Request) -> anyio.CapacityLimiter:
    """The limit on requests that compute for long."""
    return app_state(request).heavy


async def current_caller(request: Request) -> Caller:
    """The local user, where nobody else can reach the service. Raises Unauthenticated, Forbidden.

    Web pages of other sites run on this machine too.  They are kept out by the `Host` they had to use (a name of
    theirs that resolves to this machine) and by the `Origin` that browsers add to whatever changes something.
    """
    state = app_state(request)
    bind_host = state.bind_host
    if not is_loopback(bind_host) and not state.services.settings.behind_loopback_port:
        raise Unauthenticated(
            f"the service listens on {bind_host} and has no accounts: only a loopback address is served; start it with"
            " --host 127.0.0.1 and reach it through a tunnel (ssh -L)",
            headers=(("WWW-Authenticate", "Bearer"),),
        )
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if not is_loopback(host):
        raise Forbidden(f"the request names the host {host!r}; use http://127.0.0.1 or http://localhost")
    origin = request.headers.get("origin")
    if request.method not in _SAFE_METHODS and origin is not None and not _same_site(origin, request=request):
        raise Forbidden(f"a page of {origin} may not change anything here")
    return Caller(name="local")


def _same_site(origin: str, *, request: Request) -> bool:
    return urlsplit(origin).netloc == request.headers.get("host", "")


CallerDep = Annotated[Caller, Depends(current_caller)]
ServicesDep = Annotated[Services, Depends(services_of)]
HubDep = Annotated[EventHub, Depends(hub_of)]
HeavyDep = Annotated[anyio.CapacityLimiter, Depends(heavy_of)]
JobRequestDep = Annotated[JobRequest, Depends(json_body(JobRequest))]

ObjectId = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
PageSize = Annotated[int, Query(ge=1, le=200, description="Items on a page")]
CursorText = Annotated[str, Query(max_length=1000, description="The `next_cursor` of the page before")]
