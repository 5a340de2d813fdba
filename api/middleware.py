"""What surrounds every request: an id, the security headers, the limit on bodies, the last resort for exceptions.

Pure ASGI on purpose: the decorator kind of middleware buffers event streams and hides disconnects.
"""

from __future__ import annotations

import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import make_problem
from api.problems import BodyTooLarge, problem_response

MAX_BODY_BYTES = 1024 * 1024

# Plotly writes inline style elements and attributes; scripts are ours only, and nothing is ever evaluated.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")

logger = logging.getLogger(__name__)


class EdgeMiddleware:
    """Outermost: gives the request its id, adds headers to whatever is answered, answers what nobody expected."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message, request_id=request_id, path=scope["path"])
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return
        except Exception:
            logger.exception("request %s (%s %s) failed", request_id, scope["method"], scope["path"])
            if started:
                raise  # half a response is out: cutting the connection is the only honest end
            response = _unexpected(Request(scope), request_id=request_id)
            await response(scope, receive, send_with_headers)


def _unexpected(request: Request, *, request_id: str) -> ASGIApp:
    detail = f"the service failed; its log has the reason under request {request_id}"
    problem = make_problem(request, status=500, code="internal-error", detail=detail)
    return problem_response(problem, headers={})


def _request_id(scope: Scope) -> str:
    """The caller's own id where it is harmless, so that logs of both sides can be joined; else a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _add_headers(message: Message, *, request_id: str, path: str) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in _SECURITY_HEADERS:
        headers[name] = value
    headers["X-Request-ID"] = request_id
    if path.startswith("/api/"):
        headers.setdefault("Cache-Control", "no-store")


class BodyLimitMiddleware:
    """Refuses bodies above the limit, by their declared length before reading and by their real one while reading."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > self._max_body_bytes):
            problem = make_problem(
                Request(scope), status=BodyTooLarge.status, code=BodyTooLarge.code, detail=self._sentence()
            )
            # The rest of the body is not read, so the connection cannot be used again.
            await problem_response(problem, headers={"Connection": "close"})(scope, receive, send)
            return
        received_bytes = 0

        async def limited_receive() -> Message:
            nonlocal received_bytes
            message = await receive()
            if message["type"] == "http.request":
                received_bytes += len(message.get("body", b""))
                if received_bytes > self._max_body_bytes:
                    raise BodyTooLarge(self._sentence(), headers=(("Connection", "close"),))
            return message

        await self._app(scope, limited_receive, send)

    def _sentence(self) -> str:
        return f"the body is larger than {self._max_body_bytes} bytes; a job needs a few thousand"
