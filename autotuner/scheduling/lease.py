"""Keeps a claimed job ours: a thread that does nothing but renew the lease, so that a slow tick cannot lose it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from autotuner.domain.errors import AutotunerError
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """A context in which the lease of `claim` is renewed every third of its length.

    `lost` is set when another worker took the job over, or when it could not be renewed in time: from then on nothing
    may be written for the job, and its fence sees to it that nothing can.
    """

    def __init__(
        self, claim: Claim, *, database: Database, clock: Callable[[], datetime], lease_seconds: float
    ) -> None:
        self._claim = claim
        self._database = database
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._done = threading.Event()
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{claim.job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=self._lease_seconds)

    def _keep(self) -> None:
        missed = 0
        while not self._done.wait(self._lease_seconds / 3):
            try:
                with self._database.write() as store:
                    renewed = store.jobs.renew(self._claim, now=self._clock(), lease_seconds=self._lease_seconds)
                missed = 0
            except AutotunerError as error:
                # The database may be locked or restarting; two misses later the lease has run out for everyone.
                _log.warning("could not renew the lease of job %s: %s", self._claim.job_id, error)
                missed += 1
                renewed = missed < 2
            if not renewed:
                _log.error("lost the lease of job %s", self._claim.job_id)
                self.lost.set()
                return
