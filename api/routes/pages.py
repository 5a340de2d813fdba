"""The dashboard: its pages and their files. Pages hold no data: they fetch it from the API like any other client."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.assets import Asset
from api.deps import app_state

router = APIRouter(include_in_schema=False)


@router.get("/")
@router.get("/jobs/{job_id}")
def page(request: Request) -> Response:
    """One document for all pages; its script looks at the address."""
    return _respond(request, app_state(request).assets["index.html"])


@router.get("/docs")
def docs(request: Request) -> Response:
    """The operations of `/openapi.json`, listed by a page of our own: it needs no network."""
    return _respond(request, app_state(request).assets["docs.html"])


@router.get("/favicon.ico")
def favicon(request: Request) -> Response:
    """Browsers ask for it on every page, whatever the page says."""
    return _respond(request, app_state(request).assets["favicon.svg"])


@router.get("/assets/{path:path}")
def asset(request: Request, path: str) -> Response:
    """A file of the dashboard."""
    found = app_state(request).assets.get(path)
    if found is None or path.endswith(".html"):
        raise HTTPException(404)
    return _respond(request, found)


def _respond(request: Request, asset: Asset) -> Response:
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    body = asset.gzipped if "gzip" in request.headers.get("accept-encoding", "") else None
    if body is not None:
        headers["Content-Encoding"] = "gzip"
    return Response(body or asset.body, media_type=asset.media_type, headers=headers)
