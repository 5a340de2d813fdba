"""Keeps one companion process of the service alive (the worker beside `serve`) and ends it with the service.

The child gets SIGTERM from the kernel when its parent dies for whatever reason, so a killed service leaves nothing.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from autotuner.execution.commands import dying_with_parent

_log = logging.getLogger(__name__)

_RESTART_SECONDS = 1.0


class Companion:
    """Starts `argv`, starts it again when it dies by itself (up to `max_restarts` times), and stops it on `stop`.

    `ended` is set once the child is gone for good.  In a session of its own it gets no Ctrl-C from the terminal.

    The starting thread must outlive the child (the kernel's death signal is bound to the thread), so everything
    happens in one thread that ends last.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        grace_seconds: float,
        max_restarts: int,
        own_session: bool = False,
    ) -> None:
        self._argv = list(argv)
        self._environment = dict(environment)
        self._grace_seconds = grace_seconds
        self._restarts_left = max_restarts
        self._own_session = own_session
        self.ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="companion", daemon=True)

    def start(self) -> None:
        """Start the child and watch over it."""
        self._thread.start()

    def stop(self) -> None:
        """SIGTERM, a grace period, SIGKILL; returns when the child is gone."""
        self._stop.set()
        self._thread.join(timeout=self._grace_seconds + 5.0)

    def _keep(self) -> None:
        try:
            self._keep_alive()
        finally:
            self.ended.set()

    def _keep_alive(self) -> None:
        while not self._stop.is_set():
            child = subprocess.Popen(
                self._argv,
                env=self._environment,
                preexec_fn=dying_with_parent(signal.SIGTERM),  # noqa: PLW1509 - one system call, safe beside threads
                start_new_session=self._own_session,
            )
            while child.poll() is None and not self._stop.wait(0.1):
                pass
            if child.poll() is None:
                self._end(child)
                return
            if self._restarts_left == 0:
                return
            self._restarts_left -= 1
            _log.warning("%s ended with status %s and is started again", " ".join(self._argv), child.returncode)
            self._stop.wait(_RESTART_SECONDS)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        try:
            child.wait(self._grace_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(5.0)
