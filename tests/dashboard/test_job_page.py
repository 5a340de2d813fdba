"""The page of one job, in a real browser: the answer, live progress, charts, the script."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from api.server import ApiServer
from autotuner.domain.measurement import Failure
from autotuner.domain.parallel import ParallelConfig
from autotuner.wiring import Services
from tests.dashboard.conftest import OpenPage
from tests.support.example_jobs import EXAMPLES, fill, progress
from tests.support.services import START, FakeOperations, add_job, add_trial, running_server, tuning_job

pytestmark = pytest.mark.browser

FINISHED = "gpt 1.3b on one node"
RUNNING = "llama 7b on one node"


@pytest.fixture
def ids(services: Services) -> dict[str, str]:
    """The example jobs."""
    return fill(services.database, now=datetime.now(UTC))


def rows(page: Page) -> list[str]:
    """Layout keys in the order in which they are shown."""
    return page.locator(".leaderboard tbody tr td.lead code").all_inner_texts()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_finished_job_gives_its_answer(visit: OpenPage, ids: dict[str, str], width: int, scheme: str) -> None:
    page = visit(f"/jobs/{ids[FINISHED]}", width=width, scheme=scheme, charts=True)
    headline = page.locator(".headline")
    expect(headline).to_contain_text("Best layout")
    expect(headline).to_contain_text("2-way tensor parallel, 4 pipeline stages")
    expect(headline).to_contain_text("over the naive layout")
    expect(headline).to_contain_text("of 80.0 GiB a device")
    expect(headline).to_contain_text("Certainty: 6 steps in 1 run")
    expect(headline).to_contain_text("Stopped: 12 trials in a row found nothing faster")
    expect(page.locator(".progress")).to_contain_text("19 of up to 24 trials")
    expect(page.locator(".chart .main-svg").nth(3)).to_be_visible()
    expect(page.locator("at-rejections [role=listitem]").first).to_contain_text("memory")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_job_in_any_state_has_a_page(visit: OpenPage, ids: dict[str, str], server: ApiServer) -> None:
    page = visit("/")
    assert {example.state for example in EXAMPLES} >= {
        "queued",
        "running",
        "paused",
        "completed",
        "failed",
        "cancelled",
    }
    for example in EXAMPLES:
        page.goto(f"{server.url}/jobs/{ids[example.name]}")
        expect(page.get_by_role("heading", name=example.name)).to_be_visible()
        expect(page.locator(".title .state")).to_have_text(example.state)


def test_layouts_are_ranked_with_estimate_memory_and_failures(visit: OpenPage, ids: dict[str, str]) -> None:
    page = visit(f"/jobs/{ids[FINISHED]}")
    board = page.locator(".leaderboard")
    first = board.locator("tbody tr").first
    expect(first).to_contain_text("tp2-pp4-dp1-mb8-sp")
    expect(first).to_contain_text("% off")
    expect(first).to_contain_text(re.compile(r"est\. [\d.]+ GiB"))
    expect(first).to_contain_text("Expected")
    expect(board.locator("tbody tr")).to_have_count(12)
    board.get_by_role("button", name="Show all 19").click()
    expect(board.locator("tbody tr")).to_have_count(19)
    failed = board.locator("tr", has_text="out of memory")
    expect(failed).to_contain_text("micro-batch 4, or selective recompute")


def test_layouts_are_sorted_by_the_column_chosen(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
        for config, seconds in ((ParallelConfig(dp=4), 0.5), (ParallelConfig(tp=2, dp=2), 0.4)):
            add_trial(store, job.id, config=config, step_seconds=seconds, now=START)
    page = visit(f"/jobs/{job.id}")
    expect(page.locator(".leaderboard tbody tr")).to_have_count(2)
    assert rows(page) == ["tp2-pp1-dp2-mb1", "tp1-pp1-dp4-mb1"]
    page.get_by_role("columnheader", name="#").get_by_role("button").press("Enter")
    assert rows(page) == ["tp1-pp1-dp4-mb1", "tp2-pp1-dp2-mb1"]
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("#")
    # The focus stays on what was pressed.
    expect(page.get_by_role("columnheader", name="#").get_by_role("button")).to_be_focused()


def test_a_trial_opens_to_its_details_and_log(visit: OpenPage, ids: dict[str, str], operations: FakeOperations) -> None:
    operations.log = "step 8 of 8\n<b>done</b>\n"
    page = visit(f"/jobs/{ids[FINISHED]}")
    page.get_by_role("button", name="Details of trial 14").press("Enter")
    detail = page.locator("at-trial-detail")
    expect(detail).to_contain_text("Step, median")
    expect(detail).to_contain_text("Estimated tp communication")
    detail.get_by_role("button", name="Log of rank 0").click()
    expect(detail.locator("pre")).to_have_text("step 8 of 8\n<b>done</b>\n")
    page.get_by_role("button", name="Details of trial 14").press("Enter")
    expect(detail).to_have_count(0)


def test_the_page_follows_a_running_job(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
    page = visit(f"/jobs/{job.id}", charts=True)
    expect(page.locator(".headline")).to_contain_text("Waiting for a worker")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()

    with services.database.write() as store:
        store.jobs.set_state(job.id, "running", now=START)
        running = add_trial(store, job.id, config=ParallelConfig(tp=4), step_seconds=None, now=START)
        progress(store, running, step=3, now=START)
    expect(page.locator(".running")).to_contain_text("Trial 0")
    expect(page.locator(".running")).to_contain_text("step 3 of 8")
    expect(page.locator(".title .state")).to_have_text("running")

    with services.database.write() as store:
        failure = Failure(kind="out_of_memory", message="no memory", hint="use tp 4")
        store.trials.failed(running.id, failure, now=START)
        add_trial(store, job.id, config=ParallelConfig(dp=4), step_seconds=0.25, now=START)
    expect(page.locator(".headline")).to_contain_text("4,096")
    expect(page.locator(".headline")).to_contain_text("4-way data parallel")
    expect(page.locator(".leaderboard")).to_contain_text("use tp 4")
    expect(page.locator(".launch pre")).to_contain_text("torchrun")
    expect(page.locator(".chart .main-svg").first).to_be_visible()

    with services.database.write() as store:
        store.jobs.set_state(job.id, "completed", now=START, stopped_because="every layout was measured")
    expect(page.locator(".headline")).to_contain_text("every layout was measured")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()


def test_the_page_comes_back_after_the_service_was_away(
    visit: OpenPage, services: Services, expected_problems: list[str]
) -> None:
    expected_problems += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
    with running_server(services) as first:
        port = int(first.url.rsplit(":", 1)[1])
        page = visit(f"{first.url}/jobs/{job.id}")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text("Reconnecting")).to_be_visible()
    with services.database.write() as store:
        store.jobs.set_state(job.id, "running", now=START)
    with running_server(services, port=port):
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        # What happened meanwhile is shown.
        expect(page.locator(".title .state")).to_have_text("running")
        page.close()


def test_a_job_is_cancelled_only_when_asked_twice(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
    page = visit(f"/jobs/{job.id}")
    page.get_by_role("button", name="Cancel job").click()
    with services.database.read() as store:
        assert store.jobs.get(job.id).state == "queued"
    page.get_by_role("button", name="Really cancel?").click()
    expect(page.locator(".title .state")).to_have_text("cancelled")


def test_a_job_is_paused_and_resumed(visit: OpenPage, services: Services, ids: dict[str, str]) -> None:
    page = visit(f"/jobs/{ids[RUNNING]}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    with services.database.read() as store:
        assert store.jobs.get(ids[RUNNING]).desired_state == "pause"


def test_a_finished_job_is_deleted(visit: OpenPage, ids: dict[str, str], server: ApiServer) -> None:
    page = visit(f"/jobs/{ids[FINISHED]}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete for good?").click()
    page.wait_for_url(f"{server.url}/")
    expect(page.locator(".jobs-table tbody tr")).to_have_count(len(EXAMPLES) - 1)


def test_the_script_is_copied_and_downloaded(visit: OpenPage, ids: dict[str, str], tmp_path: Path) -> None:
    page = visit(f"/jobs/{ids[FINISHED]}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    launch = page.locator(".launch")
    expect(launch.locator("pre")).to_contain_text("bundled torchrun")
    launch.get_by_role("button", name="Copy").click()
    expect(launch.get_by_role("button", name="Copied")).to_be_visible()
    assert "bundled torchrun" in page.evaluate("() => navigator.clipboard.readText()")
    with page.expect_download() as download:
        launch.get_by_role("link", name="Download zip").click()
    download.value.save_as(tmp_path / "bundle.zip")
    with zipfile.ZipFile(io.BytesIO((tmp_path / "bundle.zip").read_bytes())) as archive:
        assert archive.namelist() == ["launch.sh"]


def test_an_unknown_job_says_so(visit: OpenPage, expected_problems: list[str]) -> None:
    expected_problems.append("404")
    page = visit("/jobs/unknown")
    expect(page.get_by_text("There is no such job")).to_be_visible()


def test_text_of_a_job_is_never_markup(visit: OpenPage, services: Services) -> None:
    hostile = '<img src=x onerror="console.error(1)"><b>bold</b>'
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(name=hostile), now=START - timedelta(hours=1))
        trial = add_trial(store, job.id, config=ParallelConfig(tp=4), step_seconds=None, now=START)
        store.trials.failed(trial.id, Failure(kind="crash", message=hostile, hint=hostile, log_tail=hostile), now=START)
        add_trial(store, job.id, config=ParallelConfig(dp=4), step_seconds=0.25, now=START)
    page = visit(f"/jobs/{job.id}", charts=True)
    expect(page.get_by_role("heading", name=hostile)).to_be_visible()
    page.get_by_role("button", name="Details of trial 0").click()
    expect(page.locator("at-trial-detail pre")).to_have_text(hostile)
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    assert page.locator("main img").count() == 0


def test_the_list_of_operations_works_offline(visit: OpenPage) -> None:
    page = visit("/docs")
    expect(page.get_by_text("/api/v1/jobs/{job_id}/export")).to_be_visible()
    expect(page.locator(".operation")).to_have_count(19)
