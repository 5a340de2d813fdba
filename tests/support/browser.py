"""A real browser for tests and screenshots: Debian's Chromium, driven by Playwright.

Every page that is opened here reports console errors, exceptions, refused requests of the Content-Security-Policy and
failed requests into `problems`; a test fails on any of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, expect, sync_playwright

Scheme = Literal["light", "dark"]

# How long to wait for what will surely come: long, because a busy machine is no reason to fail.
WAIT_MILLISECONDS = 30_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Reported by the browser as an event only; the page itself never sees an exception.
_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP refused ${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
});
"""
_NO_CHARTS = "window.Plotly = { react: async () => {}, purge: () => {} };"


def find_chromium() -> str | None:
    """The path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def require_chromium() -> str:
    """The path; without a browser a test is skipped with the reason, and fails where CI promises one."""
    path = find_chromium()
    if path is not None:
        return path
    reason = "no Chromium: apt-get install --no-install-recommends chromium fonts-dejavu-core"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    """A headless browser; it is closed at the end whatever happens."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, *, width: int, scheme: Scheme, problems: list[str], charts: bool = True
) -> Iterator[Page]:
    """A page in a context of its own. What goes wrong in it is appended to `problems`.

    `charts=False` leaves charts empty: Plotly's five megabytes take a second a page, and most tests are about the rest.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", locale="en-US"
    )
    context.set_default_timeout(WAIT_MILLISECONDS)
    context.add_init_script(_REPORT_VIOLATIONS)
    expect.set_options(timeout=WAIT_MILLISECONDS)
    page = context.new_page()
    if not charts:
        page.route("**/plotly.min.js", lambda route: route.fulfill(body=_NO_CHARTS, content_type="text/javascript"))

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(f"console: {message.text}")

    def on_response(response: Response) -> None:
        if response.status >= 500:
            problems.append(f"{response.status} {response.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
    page.on("response", on_response)
    try:
        yield page
    finally:
        context.close()
