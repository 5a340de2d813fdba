"""Whatever goes wrong is a problem document with a stable code, a request id and the security headers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.middleware import MAX_BODY_BYTES
from autotuner.domain.errors import StorageUnavailable
from autotuner.wiring import Services
from tests.support.services import JOB_BODY, FakeOperations

PROBLEM = "application/problem+json"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("GET", "/api/v1/nothing"),
        ("GET", "/api/v1/jobs/"),
        ("GET", "/api/v1/jobs/unknown"),
        ("DELETE", "/api/v1/jobs/unknown"),
        ("POST", "/api/v1/jobs/unknown/cancel"),
        ("POST", "/api/v1/jobs/unknown/pause"),
        ("POST", "/api/v1/jobs/unknown/resume"),
        ("GET", "/api/v1/jobs/unknown/best"),
        ("GET", "/api/v1/jobs/unknown/trials"),
        ("GET", "/api/v1/jobs/unknown/export"),
        ("GET", "/api/v1/jobs/unknown/events"),
        ("GET", "/api/v1/trials/unknown"),
        ("GET", "/api/v1/trials/unknown/logs"),
        ("GET", "/assets/nothing.js"),
        ("GET", "/assets/../app.py"),
        ("GET", "/assets/..%2Fapp.py"),
        ("GET", "/assets/index.html"),
    ],
)
def test_what_does_not_exist_is_a_404_problem(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, path)
    assert response.status_code == 404
    assert response.headers["content-type"] == PROBLEM
    problem = response.json()
    assert problem["code"] == "not-found"
    assert problem["type"] == "urn:autotuner:problem:not-found"
    assert problem["title"] == "Not Found"
    assert problem["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/api/v1/jobs", "GET, POST"),
        ("DELETE", "/api/v1/jobs", "GET, POST"),
        ("POST", "/api/v1/jobs/j1", "GET, DELETE"),
        ("GET", "/api/v1/jobs/j1/cancel", "POST"),
        ("GET", "/api/v1/estimates", "POST"),
        ("POST", "/livez", "GET"),
    ],
)
def test_a_wrong_method_names_all_that_are_allowed(client: TestClient, method: str, path: str, allow: str) -> None:
    response = client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["code"] == "method-not-allowed"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": {**JOB_BODY["model"], "num_layers": "4"}}, "model.num_layers"),
        ({"model": {**JOB_BODY["model"], "num_layers": 0}}, "model.num_layers"),
        ({"model": {**JOB_BODY["model"], "colour": "red"}}, "model.colour"),
        ({"model": {**JOB_BODY["model"], "num_layers": None}}, "model.num_layers"),
        ({"workload": {}}, "workload.global_batch_size"),
        ({"budget": {"max_trials": 1.5}}, "budget.max_trials"),
        ({"surprise": 1}, "surprise"),
        ({"name": "two\nlines"}, "name"),
        ({"space": {"tp": [1, "2"]}}, "space.tp.1"),
        ({"strategy": "luck"}, "strategy"),
        ({"command": "rm -rf /"}, "command"),
    ],
)
def test_a_wrong_field_is_named(client: TestClient, change: dict[str, object], field: str) -> None:
    response = client.post("/api/v1/jobs", json={**JOB_BODY, **change})
    assert response.status_code == 422
    assert response.headers["content-type"] == PROBLEM
    problem = response.json()
    assert problem["code"] == "invalid-input"
    assert field in [error["field"] for error in problem["errors"]]
    assert field in problem["detail"]


def test_all_wrong_fields_are_told_at_once(client: TestClient) -> None:
    response = client.post("/api/v1/jobs", json={"model": {}, "workload": {}})
    fields = {error["field"] for error in response.json()["errors"]}
    assert {"model.num_layers", "model.hidden_size", "workload.global_batch_size", "cluster"} <= fields


def _with_seed(text: str) -> bytes:
    return json.dumps(JOB_BODY)[:-1].encode() + b', "seed": ' + text.encode() + b"}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_with_seed("NaN"), id="nan"),
        pytest.param(_with_seed("1e400"), id="1e400"),
        pytest.param(_with_seed("-Infinity"), id="infinity"),
        pytest.param(_with_seed("9" * 30), id="30 digits"),
        pytest.param(_with_seed("9" * 5000), id="5000 digits"),
        pytest.param(_with_seed("[" * 100_000), id="deep list"),
        pytest.param(_with_seed('{"a":' * 5000 + "1" + "}" * 5000), id="deep object"),
        pytest.param(_with_seed('"' + "x" * 500_000 + '"'), id="long text"),
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'"\xff\xfe"', id="not UTF-8"),
        pytest.param(json.dumps(JOB_BODY).encode("utf-16"), id="UTF-16"),
        pytest.param(json.dumps({**JOB_BODY, "name": "\ud800"}).encode(), id="lone surrogate"),
        pytest.param(json.dumps({**JOB_BODY, "name": "\0"}).encode(), id="NUL"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/estimates"])
def test_a_hostile_body_is_refused_not_tripped_over(client: TestClient, path: str, body: bytes) -> None:
    response = client.post(path, content=body, headers=JSON)
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == PROBLEM
    assert len(response.content) < 20_000


def test_a_budget_of_nan_is_refused_by_field(client: TestClient) -> None:
    body = json.dumps(JOB_BODY)[:-1] + ', "budget": {"max_seconds": 1e400}}'
    response = client.post("/api/v1/jobs", content=body, headers=JSON)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "budget.max_seconds"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_of_another_media_type_is_refused(client: TestClient, media_type: str) -> None:
    response = client.post("/api/v1/jobs", content=json.dumps(JOB_BODY), headers={"content-type": media_type})
    assert response.status_code == 415
    assert response.json()["code"] == "unsupported-media-type"


def test_json_with_a_charset_is_json(client: TestClient) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/api/v1/jobs", content=json.dumps(JOB_BODY), headers=headers).status_code == 201


def test_a_body_declared_too_long_is_refused_before_it_is_read(client: TestClient) -> None:
    headers = {**JSON, "content-length": str(100 * 1024 * 1024)}
    response = client.post("/api/v1/jobs", content=b"{}", headers=headers)
    assert response.status_code == 413
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["code"] == "body-too-large"


def test_a_body_without_a_length_is_refused_while_it_is_read(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    response = client.post("/api/v1/jobs", content=chunks(), headers=JSON)
    assert response.status_code == 413
    assert response.json()["code"] == "body-too-large"


def test_an_unexpected_failure_is_a_500_problem_that_tells_nothing_inside(
    client: TestClient, operations: FakeOperations, caplog: pytest.LogCaptureFixture
) -> None:
    operations.refusal = RuntimeError("the secret is 42")
    with caplog.at_level(logging.ERROR):
        response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 500
    assert response.headers["content-type"] == PROBLEM
    problem = response.json()
    assert problem["code"] == "internal-error"
    assert "secret" not in response.text
    # The reason is in the log, and the request id finds it.
    assert problem["request_id"] in caplog.text
    assert "the secret is 42" in caplog.text
    assert "content-security-policy" in response.headers


def test_a_database_that_is_away_is_a_503_problem(client: TestClient, operations: FakeOperations) -> None:
    operations.refusal = StorageUnavailable("the disk is full")
    response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 503
    assert response.json()["code"] == "storage-unavailable"


@pytest.mark.parametrize("path", ["/", "/livez", "/api/v1/jobs", "/nothing", "/assets/js/api.js", "/openapi.json"])
def test_every_response_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert len(headers["x-request-id"]) == 32


def test_a_callers_request_id_is_kept_if_harmless(client: TestClient) -> None:
    assert client.get("/livez", headers={"x-request-id": "run-2026.03"}).headers["x-request-id"] == "run-2026.03"
    assert client.get("/livez", headers={"x-request-id": "a b<script>"}).headers["x-request-id"] != "a b<script>"


def test_data_is_not_kept_in_caches(client: TestClient) -> None:
    assert client.get("/api/v1/jobs").headers["cache-control"] == "no-store"


def test_an_application_describes_itself_in_one_document_only(services: Services) -> None:
    app = create_app(services)
    assert app.openapi() is app.openapi()
