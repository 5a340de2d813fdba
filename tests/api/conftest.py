"""Fixtures of the API's tests: services on a new SQLite file, a client that needs no socket, a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx2
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.server import ApiServer
from autotuner.wiring import Services
from tests.support.services import FakeOperations, open_services, running_server

BASE_URL = "http://127.0.0.1"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with open_services(tmp_path) as services:
        yield services


@pytest.fixture
def operations(services: Services) -> FakeOperations:
    return cast("FakeOperations", services.operations)


@pytest.fixture
def client(services: Services) -> Iterator[TestClient]:
    with TestClient(create_app(services), base_url=BASE_URL) as client:
        yield client


@pytest.fixture
def server(services: Services) -> Iterator[ApiServer]:
    with running_server(services) as server:
        yield server


@pytest.fixture
def http(server: ApiServer) -> Iterator[httpx2.Client]:
    """A client of the real server."""
    limits = httpx2.Limits(max_connections=100)
    with httpx2.Client(base_url=server.url, timeout=20, trust_env=False, limits=limits) as http:
        yield http
