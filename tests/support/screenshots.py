"""Pictures of the dashboard: `python -m tests.support.screenshots OUT [DATA_DIR]`.

Without a data folder, of a temporary database full of example jobs, light and dark, wide and narrow; with one (such as
`demo-output`), of its newest job as it is, for the README.  Ends with status 1 if a page reported an error.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from autotuner.settings import Settings
from autotuner.wiring import Services, build_services
from tests.support.browser import Scheme, find_chromium, open_browser, open_page
from tests.support.example_jobs import fill, progress
from tests.support.services import running_server

WIDTHS = (1280, 390)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
Shot = Callable[[Page], None]


def main(arguments: list[str]) -> int:
    """Take all pictures."""
    if len(arguments) not in (1, 2):
        print("usage: python -m tests.support.screenshots OUTDIR [DATA_DIR]", file=sys.stderr)  # noqa: T201
        return 2
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium: apt-get install --no-install-recommends chromium", file=sys.stderr)  # noqa: T201
        return 1
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    if len(arguments) == 2:
        _real(chromium, Path(arguments[1]), out=out, problems=problems)
    else:
        _examples(chromium, out=out, problems=problems)
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201
    return 1 if problems else 0


def _real(chromium: str, data_dir: Path, *, out: Path, problems: list[str]) -> None:
    """The upper part of the newest job's page and the list, from data that a run left."""
    services = build_services(Settings(data_dir=data_dir))
    try:
        with services.database.read() as store:
            job_id = store.jobs.list(state=None, limit=1, before_id=None)[0].id
        with running_server(services) as server, open_browser(chromium) as browser:
            for scheme in SCHEMES:
                with open_page(browser, width=1280, scheme=scheme, problems=problems) as page:
                    _open_job(page, server.url, job_id)
                    path = out / f"job-{scheme}.png"
                    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": 1500})
                    print(path)  # noqa: T201
    finally:
        services.close()


def _examples(chromium: str, *, out: Path, problems: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, _services(Path(folder)) as services:
        ids = fill(services.database, now=datetime.now(UTC))
        with running_server(services) as server, open_browser(chromium) as browser:
            for name, shot in _shots(server.url, ids=ids, services=services).items():
                _take(browser, shot, name=name, out=out, problems=problems)


@contextmanager
def _services(folder: Path) -> Iterator[Services]:
    """The real ones: estimates and launch scripts in the pictures are what a user would get."""
    services = build_services(Settings(data_dir=folder))
    try:
        yield services
    finally:
        services.close()


def _take(browser: Browser, shot: Shot, *, name: str, out: Path, problems: list[str]) -> None:
    for scheme in SCHEMES:
        for width in WIDTHS:
            with open_page(browser, width=width, scheme=scheme, problems=problems) as page:
                shot(page)
                path = out / f"{name}-{scheme}-{width}.png"
                page.screenshot(path=path, full_page=True)
                print(path)  # noqa: T201


def _shots(url: str, *, ids: dict[str, str], services: Services) -> dict[str, Shot]:
    def jobs(page: Page) -> None:
        page.goto(url)
        expect(page.locator(".jobs-table tbody tr")).to_have_count(len(ids))

    def new_job(page: Page) -> None:
        jobs(page)
        page.get_by_text("New job").click()
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".preview")).to_be_visible()

    def finished(page: Page) -> None:
        _open_job(page, url, ids["gpt 1.3b on one node"])

    def running(page: Page) -> None:
        job_id = ids["llama 7b on one node"]
        _open_job(page, url, job_id)
        with services.database.write() as store:
            trial = store.trials.list(job_id)[-1]
            progress(store, trial, step=5, now=datetime.now(UTC))
        expect(page.get_by_text("step 5 of 8")).to_be_visible()

    return {"jobs": jobs, "new-job": new_job, "job": finished, "job-running": running}


def _open_job(page: Page, url: str, job_id: str) -> None:
    page.goto(f"{url}/jobs/{job_id}")
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    expect(page.locator(".launch pre")).to_be_visible()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
