"""Jobs over HTTP: handing in, listing, looking at and steering them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from autotuner.domain.errors import InvalidInput, LaunchRefused, NoFeasibleLayout, UnknownPreset
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.rejection import Rejection
from autotuner.wiring import Services
from tests.support.services import JOB_BODY, START, FakeOperations, add_job, add_trial, tuning_job


def stored_job(services: Services, *, minutes: int = 0, name: str = "tiny gpt") -> str:
    with services.database.write() as store:
        return add_job(store, spec=tuning_job(name=name), now=START + timedelta(minutes=minutes)).id


def test_a_job_is_created_and_its_address_is_given(client: TestClient, operations: FakeOperations) -> None:
    response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert job["state"] == "queued"
    assert job["spec"]["name"] == "tiny gpt"
    assert set(job["trials"]) == {"queued", "launching", "running", "succeeded", "failed", "cancelled"}
    assert job["best_tokens_per_second"] is None
    assert operations.submitted[0].workload.global_batch_size == 8
    assert client.get(response.headers["location"]).json() == job


def test_a_job_counts_its_trials_and_names_its_best_throughput(client: TestClient, services: Services) -> None:
    job_id = stored_job(services)
    with services.database.write() as store:
        add_trial(store, job_id, config=ParallelConfig(tp=2, dp=2), step_seconds=0.5, now=START)
        add_trial(store, job_id, config=ParallelConfig(tp=4), step_seconds=0.25, now=START)
        add_trial(store, job_id, config=ParallelConfig(dp=4), step_seconds=None, now=START)
    job = client.get(f"/api/v1/jobs/{job_id}").json()
    assert (job["trials"]["succeeded"], job["trials"]["running"], job["trials"]["failed"]) == (2, 1, 0)
    # 1024 tokens a step in a quarter of a second.
    assert job["best_tokens_per_second"] == 4096.0
    assert client.get("/api/v1/jobs").json()["items"] == [job]


def test_jobs_are_listed_newest_first_page_by_page(client: TestClient, services: Services) -> None:
    ids = [stored_job(services, minutes=minute) for minute in range(5)]
    seen: list[str] = []
    cursor = ""
    pages = 0
    while True:
        page = client.get("/api/v1/jobs", params={"limit": 2, "cursor": cursor}).json()
        seen += [job["id"] for job in page["items"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert seen == ids[::-1]
    assert pages == 3  # 2 + 2 + 1


def test_a_full_last_page_has_no_cursor(client: TestClient, services: Services) -> None:
    stored_job(services, minutes=0)
    stored_job(services, minutes=1)
    page = client.get("/api/v1/jobs", params={"limit": 2}).json()
    assert len(page["items"]) == 2
    assert page["next_cursor"] is None


def test_jobs_are_filtered_by_state(client: TestClient, services: Services) -> None:
    waiting = stored_job(services)
    ended = stored_job(services, minutes=1)
    client.post(f"/api/v1/jobs/{ended}/cancel")
    items = client.get("/api/v1/jobs", params={"state": "cancelled"}).json()["items"]
    assert [job["id"] for job in items] == [ended]
    items = client.get("/api/v1/jobs", params={"state": "queued"}).json()["items"]
    assert [job["id"] for job in items] == [waiting]


@pytest.mark.parametrize("cursor", ["x", "e30", "eyJiZWZvcmUiOiAxfQ", "%00", "a" * 900])
def test_a_cursor_that_was_made_up_is_refused(client: TestClient, cursor: str) -> None:
    response = client.get("/api/v1/jobs", params={"cursor": cursor})
    assert response.status_code == 400
    assert response.json()["code"] == "invalid-cursor"


def test_a_cursor_of_another_filter_is_refused(client: TestClient, services: Services) -> None:
    stored_job(services, minutes=0)
    stored_job(services, minutes=1)
    cursor = client.get("/api/v1/jobs", params={"limit": 1}).json()["next_cursor"]
    response = client.get("/api/v1/jobs", params={"limit": 1, "cursor": cursor, "state": "queued"})
    assert response.status_code == 400
    assert "another filter" in response.json()["detail"]


@pytest.mark.parametrize("limit", ["0", "201", "-1", "many"])
def test_a_page_size_out_of_range_is_refused_by_name(client: TestClient, limit: str) -> None:
    response = client.get("/api/v1/jobs", params={"limit": limit})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "query.limit"


@pytest.mark.parametrize("action", ["cancel", "pause", "resume"])
def test_steering_is_accepted_and_gives_the_job(client: TestClient, services: Services, action: str) -> None:
    job_id = stored_job(services)
    response = client.post(f"/api/v1/jobs/{job_id}/{action}")
    assert response.status_code == 202
    assert response.json()["id"] == job_id


def test_cancel_ends_a_queued_job(client: TestClient, services: Services) -> None:
    job_id = stored_job(services)
    assert client.post(f"/api/v1/jobs/{job_id}/cancel").json()["state"] == "cancelled"


def test_a_finished_job_is_deleted_and_gone(client: TestClient, services: Services) -> None:
    job_id = stored_job(services)
    client.post(f"/api/v1/jobs/{job_id}/cancel")
    response = client.delete(f"/api/v1/jobs/{job_id}")
    assert response.status_code == 204
    assert response.content == b""
    assert client.get(f"/api/v1/jobs/{job_id}").status_code == 404


def test_a_job_that_goes_on_is_not_deleted(client: TestClient, services: Services) -> None:
    response = client.delete(f"/api/v1/jobs/{stored_job(services)}")
    assert response.status_code == 409
    assert response.json()["code"] == "conflict"


def test_best_is_not_ready_before_the_first_measurement(client: TestClient, services: Services) -> None:
    response = client.get(f"/api/v1/jobs/{stored_job(services)}/best")
    assert response.status_code == 409
    assert response.json()["code"] == "not-ready"


def test_best_names_the_fastest_layout(client: TestClient, services: Services) -> None:
    job_id = stored_job(services)
    with services.database.write() as store:
        add_trial(store, job_id, config=ParallelConfig(tp=2, dp=2), step_seconds=0.5, now=START)
        add_trial(store, job_id, config=ParallelConfig(tp=4), step_seconds=0.25, now=START)
    best = client.get(f"/api/v1/jobs/{job_id}/best").json()
    assert best["config"]["tp"] == 4
    assert best["tokens_per_second"] == 4096.0
    assert best["step_seconds"]["median"] == 0.25


def test_no_feasible_layout_says_how_many_layouts_each_rule_refused(
    client: TestClient, operations: FakeOperations
) -> None:
    example = Rejection(
        rule="heads_divisible_by_tp",
        message="num_heads 7 is not divisible by tp 2",
        values={"num_heads": 7, "tp": 2},
        fix="use tp 1 or 7",
    )
    operations.refusal = NoFeasibleLayout(
        "none of 12 layouts is feasible", histogram={"memory": 12}, examples=[example]
    )
    response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 422
    problem = response.json()
    assert problem["code"] == "no-feasible-layout"
    assert problem["rejections"] == {"memory": 12}
    assert problem["examples"][0]["fix"] == "use tp 1 or 7"
    assert client.get("/api/v1/jobs").json()["items"] == []


@pytest.mark.parametrize(
    ("error", "code", "field"),
    [
        (InvalidInput("seq_len 4096 is more than 1024", field="workload.seq_len"), "invalid-input", "workload.seq_len"),
        (UnknownPreset("no model gpt9; near: gpt2", field="model.preset"), "unknown-preset", "model.preset"),
    ],
)
def test_a_refused_value_is_told_by_field(
    client: TestClient, operations: FakeOperations, error: Exception, code: str, field: str
) -> None:
    operations.refusal = error
    response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 422
    assert response.json()["code"] == code
    assert response.json()["errors"] == [{"field": field, "message": str(error)}]


def test_a_job_that_cannot_run_here_is_refused(client: TestClient, operations: FakeOperations) -> None:
    operations.refusal = LaunchRefused("this machine has 2 cores")
    response = client.post("/api/v1/jobs", json=JOB_BODY)
    assert response.status_code == 422
    assert response.json()["code"] == "launch-refused"


def test_estimates_rank_layouts_and_store_nothing(client: TestClient) -> None:
    response = client.post("/api/v1/estimates", params={"limit": 3}, json=JOB_BODY)
    assert response.status_code == 200
    report = response.json()
    assert report["candidates"] == 6
    assert [line["key"] for line in report["ranked"]] == ["tp1-pp1-dp4-mb1", "tp1-pp1-dp4-mb2", "tp2-pp1-dp2-mb1"]
    assert client.get("/api/v1/jobs").json()["items"] == []
