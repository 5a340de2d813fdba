"""Who is answered: only this machine, and no web page of another site."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.deps import is_loopback
from autotuner.wiring import Services
from tests.support.services import JOB_BODY

EVERYWHERE = "0.0.0.0"  # noqa: S104 - told to the application, never bound

OPERATIONS = (
    ("GET", "/api/v1/jobs"),
    ("POST", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/j1"),
    ("DELETE", "/api/v1/jobs/j1"),
    ("POST", "/api/v1/jobs/j1/cancel"),
    ("POST", "/api/v1/jobs/j1/pause"),
    ("POST", "/api/v1/jobs/j1/resume"),
    ("GET", "/api/v1/jobs/j1/best"),
    ("GET", "/api/v1/jobs/j1/trials"),
    ("GET", "/api/v1/jobs/j1/events"),
    ("GET", "/api/v1/jobs/j1/export"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/trials/t1"),
    ("GET", "/api/v1/trials/t1/logs"),
    ("POST", "/api/v1/estimates"),
    ("GET", "/api/v1/presets/models"),
    ("GET", "/api/v1/workers"),
)


def test_the_list_of_operations_above_is_complete(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    described = {(m.upper(), p) for p, operations in paths.items() for m in operations if p.startswith("/api/")}
    filled = {
        (m, p.replace("j1", "{job_id}").replace("t1", "{trial_id}").replace("presets/models", "presets/{kind}"))
        for m, p in OPERATIONS
    }
    assert described == filled


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nothing_is_served_to_the_network_without_accounts(services: Services, method: str, path: str) -> None:
    with TestClient(create_app(services, bind_host=EVERYWHERE), base_url="http://127.0.0.1") as client:
        response = client.request(method, path, json=JOB_BODY if method == "POST" else None)
    assert response.status_code == 401
    assert response.json()["code"] == "authentication-required"
    assert response.headers["www-authenticate"] == "Bearer"


def test_health_is_told_to_everybody(services: Services) -> None:
    with TestClient(create_app(services, bind_host=EVERYWHERE), base_url="http://10.0.0.1") as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_foreign_name_for_this_machine_is_refused(services: Services) -> None:
    # DNS rebinding: a page of evil.example whose name now resolves to 127.0.0.1.
    with TestClient(create_app(services), base_url="http://evil.example:8000") as client:
        response = client.get("/api/v1/jobs")
    assert response.status_code == 403
    assert response.json()["code"] == "forbidden"


@pytest.mark.parametrize("base_url", ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"])
def test_names_of_this_machine_are_served(services: Services, base_url: str) -> None:
    with TestClient(create_app(services), base_url=base_url) as client:
        assert client.get("/api/v1/jobs").status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999"])
def test_a_page_of_another_site_changes_nothing(client: TestClient, origin: str) -> None:
    response = client.post("/api/v1/jobs", json=JOB_BODY, headers={"origin": origin})
    assert response.status_code == 403
    assert client.get("/api/v1/jobs").json()["items"] == []


def test_our_own_page_may_change_things(client: TestClient) -> None:
    response = client.post("/api/v1/jobs", json=JOB_BODY, headers={"origin": "http://127.0.0.1"})
    assert response.status_code == 201


def test_no_cross_origin_reading_is_allowed(client: TestClient) -> None:
    response = client.get("/api/v1/jobs", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        (EVERYWHERE, False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_what_counts_as_this_machine(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected
