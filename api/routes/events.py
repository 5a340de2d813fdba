"""Event streams (SSE): what happens to one job, or to all, as it happens.

Decides the order of a stream: what the database holds after the reader's last event, then live events, each id once.
All checks are dependencies, because after the first byte no status can be changed any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.deps import HubDep, ObjectId, ServicesDep
from api.hub import EventHub, Subscription
from api.openapi import problems
from api.problems import TooManyStreams
from autotuner.domain.trial import Event

router = APIRouter(tags=["events"])

MAX_STREAM_SECONDS = 3600.0
RETRY_MILLISECONDS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a stream starts: after which event (None: only what is new), and whether it ends with the past."""

    after: int | None
    once: bool


def stream_start(
    *,
    after: Annotated[
        str,
        Query(pattern=r"^(now|\d{1,15})$", description="Start after this event; `now` skips the past"),
    ] = "0",
    once: Annotated[bool, Query(description="End after the stored events instead of waiting for new ones")] = False,
    last_event_id: Annotated[
        str, Header(pattern=r"^\d{0,15}$", description="Resume after this event; browsers send it by themselves")
    ] = "",
) -> Start:
    """The place to start at; a resumed stream knows better than its address."""
    if last_event_id:
        return Start(after=int(last_event_id), once=once)
    return Start(after=None if after == "now" else int(after), once=once)


async def free_stream(hub: HubDep) -> None:
    """Raises TooManyStreams."""
    if hub.is_full:
        raise TooManyStreams(
            f"{hub.num_streams} event streams are open, and more are not served; close one or ask again later",
            headers=(("Retry-After", "10"),),
        )


def existing_job(services: ServicesDep, job_id: ObjectId) -> str:
    """The id of a job that exists. Raises NotFound."""
    with services.database.read() as store:
        return store.jobs.get(job_id).id


StartDep = Annotated[Start, Depends(stream_start)]


@router.get(
    "/jobs/{job_id}/events",
    operation_id="stream_job_events",
    summary="What happens to a job, live",
    response_class=EventSourceResponse,
    dependencies=[Depends(free_stream)],
    responses=problems(404, 422, 503),
)
async def stream_job_events(
    hub: HubDep, start: StartDep, job_id: Annotated[str, Depends(existing_job)]
) -> AsyncIterator[ServerSentEvent]:
    """From the job's first event on. Resume with `Last-Event-ID`; `stream.*` events are about the stream itself."""
    async for item in _stream(hub, start=start, job_id=job_id):
        yield item


@router.get(
    "/events",
    operation_id="stream_events",
    summary="What happens to all jobs, live",
    response_class=EventSourceResponse,
    dependencies=[Depends(free_stream)],
    responses=problems(422, 503),
)
async def stream_events(hub: HubDep, start: StartDep) -> AsyncIterator[ServerSentEvent]:
    """As the stream of one job, for all of them."""
    async for item in _stream(hub, start=start, job_id=None):
        yield item


async def _stream(hub: EventHub, *, start: Start, job_id: str | None) -> AsyncIterator[ServerSentEvent]:
    with hub.subscribe(job_id=job_id) as subscription:
        # Known only now: whatever comes later than this position is in the subscription's queue.
        newest = await hub.position()
        sent = newest if start.after is None else start.after
        yield _control("open", sent=sent, job_id=job_id)
        while not subscription.ended:
            page = await hub.stored(after=sent, job_id=job_id)
            for event in page:
                yield _sse(event)
                sent = event.id
            if not page:
                break
        if start.once:
            return
        async for event in _live(subscription):
            if event.id > sent:
                yield _sse(event)
                sent = event.id
        # "reset": something was left out, load everything anew.  "goodbye": come back with the last id.
        yield _control("reset" if subscription.ended == "overflow" else "goodbye", sent=sent, job_id=job_id)


async def _live(subscription: Subscription) -> AsyncIterator[Event]:
    """Events until the subscription ends or the stream has lived long enough."""
    deadline = anyio.current_time() + MAX_STREAM_SECONDS
    while True:
        with anyio.move_on_after(deadline - anyio.current_time()) as limit:
            event = await subscription.next()
        if limit.cancelled_caught or event is None:
            return
        yield event


def _sse(event: Event) -> ServerSentEvent:
    return ServerSentEvent(data=event, event=event.kind, id=str(event.id))


def _control(name: str, *, sent: int, job_id: str | None) -> ServerSentEvent:
    """An event about the stream, in the shape of any other: `id` is the last one that was sent."""
    data: dict[str, Any] = {"id": sent, "job_id": job_id, "trial_id": None, "kind": f"stream.{name}", "data": {}}
    return ServerSentEvent(data=data, event=f"stream.{name}", id=str(sent), retry=RETRY_MILLISECONDS)
