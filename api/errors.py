"""Turns every exception that can leave an endpoint into a problem document, so that no error has another shape.

Decides nothing about status and code of our own errors (`problems.py` does).  Unexpected exceptions are caught one
level further out, in `middleware.py`, where the security headers are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from api.problems import ApiError, Problem, problem_response, status_of, title_of, type_of
from autotuner.domain.errors import AutotunerError, InvalidInput, NoFeasibleLayout
from autotuner.domain.validation import FieldError

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


def add_error_handlers(app: FastAPI) -> None:
    """Register a handler for each family of exceptions."""
    app.add_exception_handler(AutotunerError, _domain_error)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _parameter_error)
    app.add_exception_handler(HTTPException, _http_error)


def make_problem(
    request: Request, *, status: int, code: str, detail: str, errors: Sequence[FieldError] = ()
) -> Problem:
    """A problem document about this request."""
    return Problem(
        type=type_of(code),
        title=title_of(status),
        status=status,
        detail=detail,
        instance=request.url.path,
        code=code,
        request_id=getattr(request.state, "request_id", ""),
        errors=list(errors),
    )


async def _domain_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, AutotunerError):
        raise error
    errors = (
        [FieldError(field=error.field, message=str(error))] if isinstance(error, InvalidInput) and error.field else []
    )
    problem = make_problem(request, status=status_of(error), code=error.code, detail=str(error), errors=errors)
    if isinstance(error, NoFeasibleLayout):
        problem = problem.model_copy(update={"rejections": error.histogram, "examples": list(error.examples)})
    return problem_response(problem, headers={})


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    problem = make_problem(request, status=error.status, code=error.code, detail=str(error), errors=error.errors)
    return problem_response(problem, headers=error.headers)


async def _parameter_error(request: Request, error: Exception) -> Response:
    """A wrong path, query or header parameter; bodies are validated by `bodies.py`."""
    if not isinstance(error, RequestValidationError):
        raise error
    errors = [_parameter(item) for item in error.errors()]
    detail = "; ".join(f"{e.field}: {e.message}" for e in errors)
    problem = make_problem(request, status=422, code="invalid-input", detail=detail, errors=errors)
    return problem_response(problem, headers={})


def _parameter(item: dict[str, Any]) -> FieldError:
    return FieldError(field=".".join(str(part) for part in item["loc"]), message=str(item["msg"]))


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = _CODES.get(error.status_code, f"http-{error.status_code}")
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}; /docs lists what there is"
    if error.status_code == 405:
        allowed = _allowed_methods(request)
        headers["Allow"] = ", ".join(allowed)
        detail = f"{request.method} is not allowed at {request.url.path}; allowed are {headers['Allow']}"
    problem = make_problem(request, status=error.status_code, code=code, detail=detail)
    return problem_response(problem, headers=headers)


def _allowed_methods(request: Request) -> list[str]:
    """Methods of *all* routes at this path: the framework's own `Allow` names only those of the first one."""
    routes: Sequence[BaseRoute] = request.app.router.routes
    return [m for m in _METHODS if any(_takes(route, request=request, method=m) for route in routes)]


def _takes(route: BaseRoute, *, request: Request, method: str) -> bool:
    scope = {key: value for key, value in request.scope.items() if key not in ("route", "endpoint", "fastapi")}
    match, _ = route.matches({**scope, "method": method, "path_params": {}})
    return match is Match.FULL
