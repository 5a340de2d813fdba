"""Trials, their logs, and the export of the best one."""

from __future__ import annotations

import io
import zipfile

import pytest
from fastapi.testclient import TestClient

from autotuner.domain.parallel import ParallelConfig
from autotuner.wiring import Services
from tests.support.services import START, FakeOperations, add_job, add_trial, tuning_job

LAYOUTS = (ParallelConfig(dp=4), ParallelConfig(tp=2, dp=2), ParallelConfig(tp=4))


@pytest.fixture
def job_id(services: Services) -> str:
    """A job with three measured trials."""
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
        for config, seconds in zip(LAYOUTS, (0.5, 0.4, 0.8), strict=True):
            add_trial(store, job.id, config=config, step_seconds=seconds, now=START)
        return job.id


def test_trials_are_listed_by_number_with_their_key(client: TestClient, job_id: str) -> None:
    page = client.get(f"/api/v1/jobs/{job_id}/trials").json()
    assert [trial["number"] for trial in page["items"]] == [0, 1, 2]
    assert [trial["key"] for trial in page["items"]] == ["tp1-pp1-dp4-mb1", "tp2-pp1-dp2-mb1", "tp4-pp1-dp1-mb1"]
    assert page["next_cursor"] is None
    assert page["items"][1]["measurement"]["step_seconds"]["median"] == 0.4
    assert page["items"][1]["estimate"]["step_seconds"] == 0.1


def test_trials_come_page_by_page(client: TestClient, job_id: str) -> None:
    first = client.get(f"/api/v1/jobs/{job_id}/trials", params={"limit": 2}).json()
    assert [trial["number"] for trial in first["items"]] == [0, 1]
    rest = client.get(f"/api/v1/jobs/{job_id}/trials", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [trial["number"] for trial in rest["items"]] == [2]
    assert rest["next_cursor"] is None


def test_one_trial_is_what_the_list_shows(client: TestClient, job_id: str) -> None:
    trial = client.get(f"/api/v1/jobs/{job_id}/trials").json()["items"][1]
    assert client.get(f"/api/v1/trials/{trial['id']}").json() == trial


def test_a_log_is_plain_text_without_terminal_escapes(
    client: TestClient, job_id: str, operations: FakeOperations
) -> None:
    operations.log = "\x1b[31mred\x1b[0m \x1b]0;title\x07plain\r\nnext\ttab\x00\x08\n"
    trial_id = client.get(f"/api/v1/jobs/{job_id}/trials").json()["items"][0]["id"]
    response = client.get(f"/api/v1/trials/{trial_id}/logs", params={"rank": 1})
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text == "red plain\nnext\ttab\n"


def test_a_log_is_cut_to_the_size_asked_for(client: TestClient, job_id: str, operations: FakeOperations) -> None:
    operations.log = "0123456789"
    trial_id = client.get(f"/api/v1/jobs/{job_id}/trials").json()["items"][0]["id"]
    assert client.get(f"/api/v1/trials/{trial_id}/logs", params={"max_bytes": 4}).text == "6789"


def test_a_rank_that_does_not_exist_is_not_found(client: TestClient, job_id: str) -> None:
    trial_id = client.get(f"/api/v1/jobs/{job_id}/trials").json()["items"][0]["id"]
    assert client.get(f"/api/v1/trials/{trial_id}/logs", params={"rank": 9}).status_code == 404


def test_export_is_a_zip_to_download(client: TestClient, job_id: str) -> None:
    response = client.get(f"/api/v1/jobs/{job_id}/export", params={"framework": "bundled", "launcher": "torchrun"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/zip"
    assert response.headers["content-disposition"] == f'attachment; filename="{job_id}-bundled-torchrun.zip"'
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert b"tp2-pp1-dp2-mb1" in archive.read("launch.sh")


def test_export_as_json_holds_the_same_files(client: TestClient, job_id: str) -> None:
    bundle = client.get(f"/api/v1/jobs/{job_id}/export", params={"format": "json", "steps": 7}).json()
    assert bundle["name"] == f"{job_id}-bundled-torchrun"
    assert [(file["path"], file["executable"]) for file in bundle["files"]] == [("launch.sh", True)]
    assert "bundled torchrun 7 tp2-pp1-dp2-mb1" in bundle["files"][0]["text"]


def test_export_before_the_first_measurement_is_not_ready(client: TestClient, services: Services) -> None:
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
    response = client.get(f"/api/v1/jobs/{job.id}/export")
    assert response.status_code == 409
    assert response.json()["code"] == "not-ready"


@pytest.mark.parametrize(
    "query",
    [
        {"format": "tar"},
        {"framework": "../x"},
        {"framework": "A\r\nB"},
        {"launcher": 'a"b'},
        {"steps": "0"},
        {"steps": "many"},
    ],
)
def test_export_of_an_impossible_kind_is_refused(client: TestClient, job_id: str, query: dict[str, str]) -> None:
    assert client.get(f"/api/v1/jobs/{job_id}/export", params=query).status_code == 422
