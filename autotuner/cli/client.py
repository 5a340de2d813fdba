"""A small typed client of the REST service: the only file of the command line that knows URLs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2

from autotuner.cli.exits import Refused, ServerUnreachable
from autotuner.domain.job import JobRequest

Json = dict[str, Any]


class Client:
    """Talks to one service. Raises ServerUnreachable, or Refused with the service's own code and sentence."""

    def __init__(self, base_url: str, *, timeout_seconds: float = 30.0) -> None:
        self._base_url = base_url.rstrip("/")
        # Proxies of the environment are for the world outside; the service is addressed directly.
        self._http = httpx2.Client(
            base_url=f"{self._base_url}/api/v1/", timeout=timeout_seconds, trust_env=False, follow_redirects=False
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def submit(self, request: JobRequest) -> Json:
        """POST /jobs."""
        return self._json("POST", "jobs", body=request.as_json())

    def job(self, job_id: str) -> Json:
        """GET /jobs/{id}."""
        return self._json("GET", f"jobs/{job_id}")

    def jobs(self, *, limit: int) -> list[Json]:
        """The newest jobs."""
        items: list[Json] = self._json("GET", f"jobs?limit={limit}")["items"]
        return items

    def trials(self, job_id: str) -> list[Json]:
        """All trials of a job by number."""
        items: list[Json] = self._json("GET", f"jobs/{job_id}/trials")["items"]
        return items

    def trial(self, trial_id: str) -> Json:
        """GET /trials/{id}."""
        return self._json("GET", f"trials/{trial_id}")

    def trial_log(self, trial_id: str, *, rank: int) -> str:
        """The end of a rank's log."""
        return self._request("GET", f"trials/{trial_id}/logs?rank={rank}").text

    def best(self, job_id: str) -> Json:
        """GET /jobs/{id}/best."""
        return self._json("GET", f"jobs/{job_id}/best")

    def act(self, job_id: str, *, action: str) -> Json:
        """POST /jobs/{id}/cancel|pause|resume."""
        return self._json("POST", f"jobs/{job_id}/{action}")

    def delete(self, job_id: str) -> None:
        """DELETE /jobs/{id}."""
        self._request("DELETE", f"jobs/{job_id}")

    def export(self, job_id: str, *, framework: str, launcher: str) -> bytes:
        """The launch bundle as a zip file."""
        return self._request("GET", f"jobs/{job_id}/export?framework={framework}&launcher={launcher}").content

    def events(self, job_id: str, *, after: int) -> Iterator[Json]:
        """Events of a job as they happen, from `after` on. Ends when the stream does; the caller resumes."""
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        try:
            with self._http.stream("GET", f"jobs/{job_id}/events", headers=headers, timeout=30.0) as response:
                self._check(response)
                for line in response.iter_lines():
                    if line.startswith("data:") and line[5:].strip():
                        yield json.loads(line[5:])
        except httpx2.TransportError:
            return

    def _json(self, method: str, path: str, *, body: Json | None = None) -> Json:
        document: Json = self._request(method, path, body=body).json()
        return document

    def _request(self, method: str, path: str, *, body: Json | None = None) -> httpx2.Response:
        try:
            response = self._http.request(method, path, json=body)
        except httpx2.TransportError as error:
            raise ServerUnreachable(
                f"no service answers at {self._base_url} ({type(error).__name__}); start one with `autotuner serve`,"
                " or set AUTOTUNER_URL"
            ) from None
        self._check(response)
        return response

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        response.read()
        try:
            problem = response.json()
            details = "; ".join(f"{e['field']}: {e['message']}" for e in problem.get("errors", []))
            text = problem.get("detail") or problem.get("title") or response.reason_phrase
            raise Refused(f"{text} ({details})" if details else text, code=problem.get("code", "error"))
        except (ValueError, AttributeError, KeyError):
            raise Refused(f"the service answered {response.status_code}", code="error") from None
