"""Runs the API under uvicorn, from Python, so that stopping ends event streams at once.

Left to itself, uvicorn waits for open streams for ever after SIGTERM.  Decides how the service listens and how it
ends; nothing about requests.
"""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from api.app import create_app
from api.deps import AppState
from autotuner.domain.errors import LaunchRefused
from autotuner.wiring import Services

GRACE_SECONDS = 5
_BACKLOG = 256


class ApiServer(uvicorn.Server):
    """One listening server. `run_until_stopped` blocks; `request_stop` may be called from any thread."""

    def __init__(self, services: Services, *, host: str, port: int, ready: Callable[[str], None]) -> None:
        app = create_app(services, bind_host=host)
        state: AppState = app.state.api
        self._hub = state.hub
        self._ready = ready
        self._host = host
        self._socket = listen(host, port=port)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                lifespan="on",
                ws="none",
                proxy_headers=False,
            )
        )

    @property
    def url(self) -> str:
        """Where the service is reached, with the port that was really taken."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._socket.getsockname()[1]}"

    def run_until_stopped(self) -> None:
        """Serve until a signal or `request_stop`."""
        try:
            self.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def request_stop(self) -> None:
        """End streams, then the server."""
        self.should_exit = True
        self._hub.request_stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's; then say that it listens."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """First signal: end in order; a second SIGINT: at once.

        The signal is not raised again afterwards (as uvicorn would do): whoever called has to clean up, too.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.request_stop()


def run_server(services: Services, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready(url)` is called once it listens. Port 0 takes a free one.

    Raises LaunchRefused when the address cannot be listened on.
    """
    ApiServer(services, host=host, port=port, ready=ready).run_until_stopped()


def listen(host: str, *, port: int) -> socket.socket:
    """A listening socket. Raises LaunchRefused with the reason and a way out."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise LaunchRefused(f"the host {host!r} is not known here ({error}); use --host 127.0.0.1") from None
    listener = socket.socket(family, kind, protocol)
    try:
        # Lets a restarted service have its port again while old connections time out; a listening one stays refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise LaunchRefused(_refused(host, port=port, error=error)) from None
    return listener


def _refused(host: str, *, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; give another with --port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs administrator's rights; give one from 1024 up with --port"
    return f"cannot listen on {host} port {port}: {error.strerror}; use --host 127.0.0.1"
