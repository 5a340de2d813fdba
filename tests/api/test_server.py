"""The server itself: listening, refusing an address, ending on a signal with streams open."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from api.server import ApiServer, listen, run_server
from autotuner.domain.errors import LaunchRefused
from autotuner.wiring import Services

REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
import sys
from pathlib import Path
from api.server import run_server
from tests.support.services import open_services

with open_services(Path(sys.argv[1])) as services:
    run_server(services, host="127.0.0.1", port=0, ready=lambda url: print(url, flush=True))
print("cleaned up", flush=True)
"""


def test_a_free_port_is_taken_and_told(http: httpx2.Client, server: ApiServer) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", server.url)
    assert http.get("/livez").json() == {"status": "ok"}


def test_a_taken_port_is_refused_with_a_way_out(services: Services) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LaunchRefused, match=rf"port {port} on 127\.0\.0\.1 is taken .* --port"):
            run_server(services, host="127.0.0.1", port=port, ready=lambda _: None)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "x" * 300, "a..b"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(LaunchRefused, match=r"--host 127\.0\.0\.1"):
        listen(host, port=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_and_the_program_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"}
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with (
                httpx2.Client(base_url=url, timeout=20, trust_env=False) as http,
                http.stream("GET", "/api/v1/events?after=now") as response,
            ):
                lines = response.iter_lines()
                assert next(lines) == "event: stream.open"
                process.send_signal(number)
                assert "event: stream.goodbye" in list(lines)
            assert process.stdout.read() == "cleaned up\n"
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_hundred_megabytes_are_refused_without_reading_them(server: ApiServer, http: httpx2.Client) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {100 * 1024 * 1024}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer
    assert b'"code":"body-too-large"' in answer
    assert http.get("/livez").status_code == 200


def test_a_client_that_sends_a_hundred_megabytes_gets_an_answer(http: httpx2.Client) -> None:
    try:
        response = http.post(
            "/api/v1/jobs", content=b" " * (100 * 1024 * 1024), headers={"content-type": "application/json"}
        )
    except httpx2.TransportError:
        pass  # the connection was closed while the client was still writing: also no harm done
    else:
        assert response.status_code == 413
    assert http.get("/livez").status_code == 200
