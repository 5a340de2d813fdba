"""How a refusal looks over HTTP: RFC 9457 problem documents, with a stable `code` for programs.

Decides the document's shape and which status belongs to which typed error of the domain.  What is refused, and the
sentence that says why, is decided where the error is raised.
"""

from __future__ import annotations

from http import HTTPStatus

from pydantic import Field
from starlette.responses import Response

from autotuner.domain.base import Value
from autotuner.domain.errors import (
    AutotunerError,
    Conflict,
    InvalidInput,
    LaunchRefused,
    NoFeasibleLayout,
    NotFound,
    NotReady,
    StorageUnavailable,
)
from autotuner.domain.rejection import Rejection
from autotuner.domain.validation import FieldError

MEDIA_TYPE = "application/problem+json"

_STATUS_OF: dict[type[AutotunerError], int] = {
    InvalidInput: 422,
    NoFeasibleLayout: 422,
    LaunchRefused: 422,
    NotFound: 404,
    Conflict: 409,
    NotReady: 409,
    StorageUnavailable: 503,
}


class Problem(Value):
    """An error. `code` never changes its meaning; `detail` is one sentence for a person.

    `rejections` counts, by rule, the layouts that were refused when none is feasible; `examples` holds one of each.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FieldError] = Field(default_factory=list)
    rejections: dict[str, int] | None = None
    examples: list[Rejection] | None = None


class ApiError(Exception):
    """A refusal that only makes sense over HTTP; `status` and `code` are the class's, the sentence is the caller's."""

    status = 400
    code = "bad-request"

    def __init__(
        self, detail: str, *, errors: tuple[FieldError, ...] = (), headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(detail)
        self.errors = errors
        self.headers = dict(headers)


class InvalidBody(ApiError):
    """The body is JSON, but not the document that is expected."""

    status = 422
    code = "invalid-input"


class MalformedJson(ApiError):
    """The body is not JSON at all (cut off, not UTF-8, nested too deeply)."""

    status = 400
    code = "malformed-json"


class WrongMediaType(ApiError):
    """The body is not declared as JSON. Also keeps other web sites from posting forms."""

    status = 415
    code = "unsupported-media-type"


class BodyTooLarge(ApiError):
    """The body has more bytes than any job needs."""

    status = 413
    code = "body-too-large"


class InvalidCursor(ApiError):
    """A cursor that this listing did not hand out."""

    status = 400
    code = "invalid-cursor"


class Unauthenticated(ApiError):
    """Nobody has said who they are, and the address is one where that matters."""

    status = 401
    code = "authentication-required"


class Forbidden(ApiError):
    """The request comes from another web site."""

    status = 403
    code = "forbidden"


class TooManyStreams(ApiError):
    """The process holds as many event streams as it may."""

    status = 503
    code = "too-many-streams"


def status_of(error: AutotunerError) -> int:
    """The HTTP status of a domain error, that of its nearest known base class; 500 for one nobody mapped."""
    for kind in type(error).__mro__:
        if kind in _STATUS_OF:
            return _STATUS_OF[kind]
    return 500


def title_of(status: int) -> str:
    """The status as words: 404 is "Not Found"."""
    return HTTPStatus(status).phrase


def type_of(code: str) -> str:
    """The problem type of a code: a stable name, not an address."""
    return f"urn:autotuner:problem:{code}"


def problem_response(problem: Problem, *, headers: dict[str, str]) -> Response:
    """The document as a response. Fields that do not apply are left out."""
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
