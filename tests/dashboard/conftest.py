"""Fixtures of the browser tests: one browser, a server for each test, pages that fail on any error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, Page

from api.server import ApiServer
from autotuner.wiring import Services
from tests.support.browser import Scheme, open_browser, open_page, require_chromium
from tests.support.services import FakeOperations, open_services, running_server

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser(require_chromium()) as browser:
        yield browser


@pytest.fixture
def services(browser: Browser, tmp_path: Path) -> Iterator[Services]:
    # The browser comes first: where there is none, nothing else is started.
    with open_services(tmp_path) as services:
        yield services


@pytest.fixture
def operations(services: Services) -> FakeOperations:
    return cast("FakeOperations", services.operations)


@pytest.fixture
def server(services: Services) -> Iterator[ApiServer]:
    with running_server(services) as server:
        yield server


@pytest.fixture
def expected_problems() -> list[str]:
    """Parts of texts that a test provokes on purpose; the browser itself logs every refused request."""
    return []


@pytest.fixture
def visit(browser: Browser, server: ApiServer, expected_problems: list[str]) -> Iterator[OpenPage]:
    """Open a page of the dashboard (or a full address). None may report an error or a violation of the CSP."""
    problems: list[str] = []
    with ExitStack() as stack:

        def visit(path: str, *, width: int = 1280, scheme: Scheme = "light", charts: bool = False) -> Page:
            page = stack.enter_context(open_page(browser, width=width, scheme=scheme, problems=problems, charts=charts))
            page.goto(path if path.startswith("http") else server.url + path)
            return page

        yield visit
    unexpected = [p for p in problems if not any(part in p for part in expected_problems)]
    assert unexpected == []
