"""A thread that does one small thing at a fixed interval, as long as a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Periodic:
    """Calls `action` every `interval_seconds` inside its block, until it gives False. `action` must not raise."""

    def __init__(self, action: Callable[[], bool], *, interval_seconds: float, name: str) -> None:
        self._action = action
        self._interval_seconds = interval_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        # An action may be waiting for the database, which gives up after its own time limit.
        self._thread.join(timeout=15.0)

    def _run(self) -> None:
        while not self._done.wait(self._interval_seconds):
            if not self._action():
                return
