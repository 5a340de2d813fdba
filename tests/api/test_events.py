"""Event streams: order, resuming, ending, and that many open ones disturb nobody."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
from fastapi.testclient import TestClient

from api.hub import EventHub
from api.server import ApiServer
from autotuner.domain.parallel import ParallelConfig
from autotuner.wiring import Services
from tests.support.services import START, add_job, add_trial, tuning_job

Json = dict[str, Any]


def parse(lines: Iterator[str]) -> Iterator[Json]:
    """Events as a browser sees them: `name`, `id`, `data`."""
    event: Json = {}
    for line in lines:
        if not line and event:
            yield event
            event = {}
        name, colon, value = line.partition(": ")
        if colon and name in ("event", "id", "data"):
            event[name] = json.loads(value) if name == "data" else value


def read_once(client: TestClient, path: str, *, headers: dict[str, str] | None = None, after: str = "0") -> list[Json]:
    response = client.get(path, params={"once": "true", "after": after}, headers=headers or {})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    return list(parse(iter(response.text.splitlines())))


@pytest.fixture
def job_id(services: Services) -> str:
    """A job with one measured trial: events 1 job.created, 2 trial.created, 3-5 trial.state."""
    with services.database.write() as store:
        job = add_job(store, spec=tuning_job(), now=START)
        add_trial(store, job.id, config=ParallelConfig(tp=4), step_seconds=0.5, now=START)
        return job.id


async def hub_has_read(hub: EventHub, *, event_id: int) -> None:
    """Wait until the poller has handed out this event."""
    with anyio.fail_after(20):
        while await hub.position() < event_id:  # noqa: ASYNC110 - the poller is the thing under test
            await anyio.sleep(0.01)


@contextlib.contextmanager
def streaming(http: httpx2.Client, path: str, *, headers: dict[str, str] | None = None) -> Iterator[Iterator[Json]]:
    with http.stream("GET", path, headers=headers or {}) as response:
        assert response.status_code == 200
        yield parse(response.iter_lines())


def note(services: Services, job_id: str, *, number: int) -> int:
    with services.database.write() as store:
        return store.events.append(job_id, "job.note", trial_id=None, data={"number": number}, now=START).id


def test_a_stream_tells_the_whole_story_in_order(client: TestClient, job_id: str) -> None:
    events = read_once(client, f"/api/v1/jobs/{job_id}/events")
    assert [e["event"] for e in events] == [
        "stream.open", "job.created", "trial.created", "trial.state", "trial.state", "trial.state",
    ]  # fmt: skip
    assert [e["id"] for e in events] == ["0", "1", "2", "3", "4", "5"]
    assert events[-1]["data"]["data"]["state"] == "succeeded"
    assert events[-1]["data"]["job_id"] == job_id


def test_events_about_the_stream_have_the_shape_of_all_others(client: TestClient, job_id: str) -> None:
    events = read_once(client, f"/api/v1/jobs/{job_id}/events")
    assert events[0]["data"] == {"id": 0, "job_id": job_id, "trial_id": None, "kind": "stream.open", "data": {}}
    assert set(events[1]["data"]) == {"id", "job_id", "trial_id", "kind", "data", "created_at"}


def test_a_stream_resumes_after_the_last_event_that_was_seen(client: TestClient, job_id: str) -> None:
    events = read_once(client, f"/api/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "3"})
    assert [e["id"] for e in events] == ["3", "4", "5"]


def test_resuming_wins_over_the_address(client: TestClient, job_id: str) -> None:
    events = read_once(client, f"/api/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "4"}, after="now")
    assert [e["id"] for e in events] == ["4", "5"]


def test_the_past_can_be_skipped(client: TestClient, job_id: str) -> None:
    events = read_once(client, f"/api/v1/jobs/{job_id}/events", after="now")
    assert [(e["event"], e["id"]) for e in events] == [("stream.open", "5")]


def test_the_stream_of_one_job_leaves_out_others(client: TestClient, services: Services, job_id: str) -> None:
    with services.database.write() as store:
        other = add_job(store, spec=tuning_job(), now=START)
    assert [e["event"] for e in read_once(client, f"/api/v1/jobs/{other.id}/events")] == ["stream.open", "job.created"]
    everything = read_once(client, "/api/v1/events")
    assert [e["id"] for e in everything] == ["0", "1", "2", "3", "4", "5", "6"]
    assert everything[-1]["data"]["job_id"] == other.id


def test_more_events_than_one_page_all_arrive(client: TestClient, services: Services, job_id: str) -> None:
    # Five events are there; a page has 500.
    with services.database.write() as store:
        for number in range(1200):
            store.events.append(job_id, "job.note", trial_id=None, data={"number": number}, now=START)
    events = read_once(client, f"/api/v1/jobs/{job_id}/events")
    assert [int(e["id"]) for e in events] == [0, *range(1, 1206)]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30])
def test_an_impossible_last_event_id_is_refused_before_the_stream_starts(
    client: TestClient, job_id: str, last: str
) -> None:
    response = client.get(f"/api/v1/jobs/{job_id}/events", headers={"Last-Event-ID": last})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"


def test_the_stream_of_an_unknown_job_is_a_404(client: TestClient) -> None:
    response = client.get("/api/v1/jobs/unknown/events")
    assert response.status_code == 404
    assert response.json()["code"] == "not-found"


def test_live_events_follow_the_past_without_gap_or_repetition(
    http: httpx2.Client, services: Services, job_id: str
) -> None:
    with streaming(http, f"/api/v1/jobs/{job_id}/events") as events:
        assert [next(events)["id"] for _ in range(6)] == ["0", "1", "2", "3", "4", "5"]
        for number in range(20):
            note(services, job_id, number=number)
        live = [next(events) for _ in range(20)]
    assert [e["data"]["data"]["number"] for e in live] == list(range(20))
    assert [int(e["id"]) for e in live] == list(range(6, 26))


def test_a_reader_that_reconnects_misses_nothing(http: httpx2.Client, services: Services, job_id: str) -> None:
    path = f"/api/v1/jobs/{job_id}/events?after=now"
    with streaming(http, path) as events:
        assert next(events)["event"] == "stream.open"
        note(services, job_id, number=1)
        last = next(events)
    missed = note(services, job_id, number=2)
    with streaming(http, path, headers={"Last-Event-ID": last["id"]}) as events:
        assert next(events)["event"] == "stream.open"
        assert int(next(events)["id"]) == missed


def test_forty_open_streams_do_not_starve_requests(http: httpx2.Client, services: Services, job_id: str) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(streaming(http, "/api/v1/events?after=now")) for _ in range(40)]
        assert [next(events)["event"] for events in streams] == ["stream.open"] * 40
        # More requests than there are threads or connections, while all streams stay open.
        for _ in range(60):
            assert http.get("/api/v1/jobs").status_code == 200
        sent = note(services, job_id, number=1)
        assert [int(next(events)["id"]) for events in streams] == [sent] * 40


def test_streams_end_at_once_when_the_server_stops(services: Services, job_id: str) -> None:
    listening, ended = threading.Event(), threading.Event()
    server = ApiServer(services, host="127.0.0.1", port=0, ready=lambda _: listening.set())

    def serve() -> None:
        server.run_until_stopped()
        ended.set()

    threading.Thread(target=serve).start()
    try:
        assert listening.wait(20)
        with (
            httpx2.Client(base_url=server.url, timeout=20, trust_env=False) as http,
            streaming(http, f"/api/v1/jobs/{job_id}/events?after=now") as events,
        ):
            assert next(events)["event"] == "stream.open"
            server.request_stop()
            # The last words come from the stream itself: it was not cut by the server's own time limit.
            assert [e["event"] for e in events] == ["stream.goodbye"]
    finally:
        server.request_stop()
    assert ended.wait(20)


def test_too_many_streams_are_refused_with_a_time_to_come_back(client: TestClient, job_id: str) -> None:
    hub: EventHub = client.app.state.api.hub  # type: ignore[attr-defined]
    hub._max_streams = 0
    response = client.get("/api/v1/events", params={"once": "true"})
    assert response.status_code == 503
    assert response.json()["code"] == "too-many-streams"
    assert response.headers["retry-after"] == "10"


@pytest.mark.anyio
async def test_a_slow_reader_is_told_to_start_again(services: Services, job_id: str) -> None:
    hub = EventHub(services.database, poll_seconds=0.01, queue_events=3)
    with anyio.fail_after(20):
        async with hub.running():
            with hub.subscribe(job_id=job_id) as subscription:
                await hub.position()
                for number in range(5):
                    note(services, job_id, number=number)
                # Nothing is taken from the queue until the reader has been given up.
                await hub_has_read(hub, event_id=10)
                assert subscription.ended == "overflow"
                # What fitted into the queue is still delivered, then the end.
                assert [(await subscription.next()) is None for _ in range(4)] == [False, False, False, True]


@pytest.mark.anyio
async def test_the_poller_rests_while_nobody_listens(services: Services, job_id: str) -> None:
    hub = EventHub(services.database, poll_seconds=0.01)
    with anyio.fail_after(20):
        async with hub.running():
            with hub.subscribe(job_id=None):
                assert await hub.position() == 5
            note(services, job_id, number=1)
            assert hub._position is None
            # A later reader starts at the newest event, not where an earlier one left.
            with hub.subscribe(job_id=None):
                assert await hub.position() == 6


@pytest.mark.anyio
async def test_a_database_that_fails_once_does_not_end_the_streams(
    services: Services, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = EventHub(services.database, poll_seconds=0.01)
    read, failures = hub._news, []

    def failing(start: int) -> Any:
        if not failures:
            failures.append(start)
            raise OSError("the disk is away")
        return read(start)

    monkeypatch.setattr(hub, "_news", failing)
    with anyio.fail_after(20):
        async with hub.running():
            with hub.subscribe(job_id=job_id) as subscription:
                await hub.position()
                sent = note(services, job_id, number=1)
                event = await subscription.next()
    assert failures == [5]
    assert event is not None
    assert event.id == sent
