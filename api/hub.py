"""Hands new events to all open streams of this process, with one poller however many streams there are.

Decides when the database is asked and what happens to a slow reader (it is told to reload and let go: its queue never
grows without bound).  What an event means, and how it looks on the wire, is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from autotuner.domain.trial import Event
from autotuner.storage.database import Database

T = TypeVar("T")

POLL_SECONDS = 0.1
MAX_STREAMS = 256
QUEUE_EVENTS = 1000
PAGE_EVENTS = 500

EndReason = Literal["", "overflow", "stopping"]

logger = logging.getLogger(__name__)


class Subscription:
    """One reader's queue. Events may repeat what was read from the database: compare ids."""

    def __init__(self, *, job_id: str | None, queue_events: int) -> None:
        self.job_id = job_id
        self.ended: EndReason = ""
        self._send: MemoryObjectSendStream[Event]
        self._receive: MemoryObjectReceiveStream[Event]
        self._send, self._receive = anyio.create_memory_object_stream[Event](queue_events)

    def offer(self, event: Event) -> None:
        """Queue an event if it is this reader's; a full queue ends the subscription."""
        if self.ended or (self.job_id is not None and event.job_id != self.job_id):
            return
        try:
            self._send.send_nowait(event)
        except anyio.WouldBlock:
            self.end("overflow")

    def end(self, reason: EndReason) -> None:
        """Let the reader have what is queued, then end it."""
        if not self.ended:
            self.ended = reason
            self._send.close()

    async def next(self) -> Event | None:
        """The next event; None when the subscription has ended."""
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            return None

    def close(self) -> None:
        """Free both ends."""
        self._send.close()
        self._receive.close()


class EventHub:
    """The process's only reader of new events."""

    def __init__(
        self,
        database: Database,
        *,
        poll_seconds: float = POLL_SECONDS,
        max_streams: int = MAX_STREAMS,
        queue_events: int = QUEUE_EVENTS,
    ) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._max_streams = max_streams
        self._queue_events = queue_events
        self._subscriptions: set[Subscription] = set()
        # The newest event that was handed out; None while nobody listens.
        self._position: int | None = None
        # The database's sign of change when it was last read: asking for it costs next to nothing.
        self._token = 0
        self._positioning = anyio.Lock()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Streams must not use up the threads that answer requests.
        self._threads = anyio.CapacityLimiter(4)

    @property
    def is_full(self) -> bool:
        """Whether another stream would be one too many."""
        return len(self._subscriptions) >= self._max_streams

    @property
    def num_streams(self) -> int:
        """Streams that are open now."""
        return len(self._subscriptions)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Poll while the application runs."""
        self._loop = asyncio.get_running_loop()
        poller = asyncio.create_task(self._poll(), name="event-poller")
        try:
            yield
        finally:
            self._stop()
            await poller
            self._loop = None

    def request_stop(self) -> None:
        """End all streams now. May be called from a signal handler or another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    @contextmanager
    def subscribe(self, *, job_id: str | None) -> Iterator[Subscription]:
        """A queue of what happens from now on, to all jobs or to one."""
        subscription = Subscription(job_id=job_id, queue_events=self._queue_events)
        self._subscriptions.add(subscription)
        if self._stopping.is_set():
            subscription.end("stopping")
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()
            if not self._subscriptions:
                self._position, self._token = None, 0

    async def position(self) -> int:
        """Id of the newest event handed out: what comes later reaches every subscription that exists now."""
        async with self._positioning:
            if self._position is None:
                self._position = await self._in_thread(self._last_id)
            return self._position

    async def stored(self, *, after: int, job_id: str | None) -> Sequence[Event]:
        """A page of events from the database, oldest first."""
        return await self._in_thread(lambda: self._after(after, job_id=job_id))

    def _stop(self) -> None:
        self._stopping.set()
        for subscription in list(self._subscriptions):
            subscription.end("stopping")

    async def _poll(self) -> None:
        while not self._stopping.is_set():
            if self._position is not None:
                await self._pump()
            try:
                await asyncio.wait_for(self._stopping.wait(), timeout=self._poll_seconds)
            except TimeoutError:
                continue

    async def _pump(self) -> None:
        start = self._position
        if start is None:
            return
        try:
            token, events = await self._in_thread(lambda: self._news(start))
        except Exception:
            # A database that is away for a moment must not end every stream: the next round asks again.
            logger.exception("new events could not be read")
            await asyncio.sleep(10 * self._poll_seconds)
            return
        if self._position != start:
            return  # everybody left meanwhile, and somebody new started at another place
        for event in events:
            for subscription in list(self._subscriptions):
                subscription.offer(event)
            self._position = event.id
        # A full page means that there is more, although nothing may change any more.
        self._token = token if len(events) < PAGE_EVENTS else 0

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._threads)

    def _news(self, start: int) -> tuple[int, Sequence[Event]]:
        # The sign is read before the events: a change in between is seen in the next round, never lost.
        token = self._database.changed_since(self._token)
        if token == self._token:
            return token, ()
        return token, self._after(start, job_id=None)

    def _after(self, event_id: int, *, job_id: str | None) -> Sequence[Event]:
        with self._database.read() as store:
            return store.events.after(event_id, job_id=job_id, limit=PAGE_EVENTS)

    def _last_id(self) -> int:
        with self._database.read() as store:
            return store.events.last_id()
