"""Health, workers and presets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from autotuner.wiring import Services


def test_the_process_says_that_it_lives(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "ok"}


def test_the_service_is_ready_and_counts_its_workers(client: TestClient, services: Services) -> None:
    assert client.get("/readyz").json() == {"status": "ok", "workers_alive": 0}
    with services.database.write() as store:
        store.workers.beat("host:1:a", host="host", version="1.0", devices=8, now=datetime.now(UTC))
    assert client.get("/readyz").json() == {"status": "ok", "workers_alive": 1}


def test_old_tables_are_not_ready(client: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(services.database), "is_current", lambda _: False)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["code"] == "storage-unavailable"
    # The process itself is well: a supervisor must not restart it for that.
    assert client.get("/livez").status_code == 200


def test_workers_that_are_alive_are_listed(client: TestClient, services: Services) -> None:
    assert client.get("/api/v1/workers").json() == {"items": []}
    with services.database.write() as store:
        store.workers.beat("host:1:a", host="gpu-node", version="1.0", devices=8, now=datetime.now(UTC))
        store.workers.beat("host:2:b", host="gone", version="1.0", devices=8, now=datetime(2020, 1, 1, tzinfo=UTC))
    items = client.get("/api/v1/workers").json()["items"]
    assert [(w["host"], w["devices"]) for w in items] == [("gpu-node", 8)]


@pytest.mark.parametrize("kind", ["models", "devices", "clusters"])
def test_presets_are_listed_by_name_with_their_values(client: TestClient, kind: str) -> None:
    items = client.get(f"/api/v1/presets/{kind}").json()["items"]
    names = [item["name"] for item in items]
    assert names == sorted(names)
    assert len(names) >= 2
    assert all(item["source"] for item in items)
    assert all(item["spec"]["name"] == item["name"] for item in items)


def test_an_unknown_kind_of_preset_is_refused(client: TestClient) -> None:
    assert client.get("/api/v1/presets/recipes").status_code == 422
