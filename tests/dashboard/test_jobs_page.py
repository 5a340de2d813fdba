"""The list of jobs and the box that starts one, in a real browser."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from api.server import ApiServer
from autotuner.domain.errors import InvalidInput, NoFeasibleLayout
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.wiring import Services
from tests.dashboard.conftest import OpenPage
from tests.support.example_jobs import EXAMPLES, fill
from tests.support.services import JOB_BODY, START, FakeOperations, add_job, add_trial, tuning_job

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_all_jobs_are_listed_newest_first(visit: OpenPage, services: Services, width: int, scheme: str) -> None:
    fill(services.database, now=datetime.now(UTC))
    page = visit("/", width=width, scheme=scheme)
    rows = page.locator(".jobs-table tbody tr")
    expect(rows).to_have_count(len(EXAMPLES))
    expect(rows.first).to_contain_text(EXAMPLES[-1].name)
    finished = rows.filter(has_text="gpt 1.3b on one node")
    expect(finished).to_contain_text("completed")
    expect(finished).to_contain_text("19 of 24")
    # Nothing sticks out of a narrow screen.
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_empty_list_says_what_to_do(visit: OpenPage) -> None:
    page = visit("/")
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    expect(page.get_by_label("The job as JSON")).to_be_visible()


def test_jobs_that_wait_without_a_worker_say_so(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        add_job(store, spec=tuning_job(), now=START)
    page = visit("/")
    expect(page.get_by_text("No worker is alive")).to_be_visible()
    with services.database.write() as store:
        store.workers.beat("w", host="h", version="1", devices=2, now=datetime.now(UTC))
        add_job(store, spec=tuning_job(name="second"), now=datetime.now(UTC))
    expect(page.get_by_role("link", name="second")).to_be_visible()
    expect(page.get_by_text("No worker is alive")).to_be_hidden()


def test_the_list_follows_what_happens(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
    page = visit("/")
    row = page.locator(".jobs-table tbody tr")
    expect(row).to_contain_text("0 of 24")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    with services.database.write() as store:
        store.jobs.set_state(job.id, "running", now=START)
        add_trial(store, job.id, config=ParallelConfig(tp=4), step_seconds=0.25, now=START)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("1 of 24")
    # 1024 tokens a step in a quarter of a second.
    expect(row).to_contain_text("4,096")


def test_a_long_list_is_loaded_page_by_page(visit: OpenPage, services: Services) -> None:
    with services.database.write() as store:
        for number in range(55):
            add_job(store, spec=tuning_job(name=f"job {number}"), now=START.replace(minute=number))
    page = visit("/")
    rows = page.locator(".jobs-table tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Load more").click()
    expect(rows).to_have_count(55)
    expect(page.get_by_role("button", name="Load more")).to_be_hidden()


def test_a_job_is_checked_and_started(visit: OpenPage, operations: FakeOperations, server: ApiServer) -> None:
    page = visit("/")
    page.get_by_label("The job as JSON").fill(json.dumps(JOB_BODY))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".preview")).to_contain_text("231k")
    expect(page.locator(".preview tbody tr")).to_have_count(5)
    expect(page.locator(".preview")).to_contain_text("heads divisible by tp 3, batch divisible 2")
    assert operations.submitted == []
    page.get_by_role("button", name="Start tuning").click()
    page.wait_for_url(f"{server.url}/jobs/*")
    expect(page.get_by_role("heading", name="tiny gpt")).to_be_visible()
    assert operations.submitted[0].name == "tiny gpt"


def test_the_example_in_the_box_is_a_valid_job(visit: OpenPage) -> None:
    page = visit("/")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".preview")).to_be_visible()


def test_the_keyboard_starts_a_job(visit: OpenPage, server: ApiServer) -> None:
    page = visit("/")
    page.get_by_label("The job as JSON").press("Control+Enter")
    page.wait_for_url(f"{server.url}/jobs/*")


def test_wrong_fields_are_told_one_by_one(visit: OpenPage, expected_problems: list[str]) -> None:
    expected_problems.append("422")
    page = visit("/")
    wrong = {**JOB_BODY, "model": {**JOB_BODY["model"], "num_layers": "four"}, "colour": "red"}
    page.get_by_label("The job as JSON").fill(json.dumps(wrong))
    page.get_by_role("button", name="Check").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("2 fields are wrong")
    expect(alert.get_by_text("model.num_layers", exact=True)).to_be_visible()
    expect(alert.get_by_text("colour", exact=True)).to_be_visible()


def test_text_that_is_no_json_is_told_with_its_place(visit: OpenPage, expected_problems: list[str]) -> None:
    expected_problems.append("400")
    page = visit("/")
    page.get_by_label("The job as JSON").fill('{"name": }')
    page.get_by_role("button", name="Start tuning").click()
    expect(page.get_by_role("alert")).to_contain_text("line 1 column 10")


def test_no_feasible_layout_shows_the_rules(
    visit: OpenPage, operations: FakeOperations, expected_problems: list[str]
) -> None:
    expected_problems.append("422")
    example = Rejection(rule="memory", message="needs 90 GiB of 80 GiB", values={}, fix="use tp 2")
    operations.refusal = NoFeasibleLayout(
        "none of 12 layouts is feasible", histogram={"memory": 12}, examples=[example]
    )
    page = visit("/")
    page.get_by_role("button", name="Check").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("none of 12 layouts is feasible")
    expect(alert).to_contain_text("memory 12")
    expect(alert).to_contain_text("use tp 2")


def test_what_others_wrote_is_text_and_nothing_else(
    visit: OpenPage, services: Services, operations: FakeOperations, expected_problems: list[str]
) -> None:
    expected_problems.append("422")
    hostile = '<img src=x onerror="console.error(1)"><b>bold</b>'
    with services.database.write() as store:
        add_job(store, spec=tuning_job(name=hostile), now=START)
    operations.refusal = InvalidInput(hostile, field=hostile)
    page = visit("/")
    expect(page.get_by_role("link", name=hostile)).to_be_visible()
    page.get_by_text("New job").click()
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text(hostile)
    assert page.locator("main img, main b").count() == 0
