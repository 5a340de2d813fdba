"""Keeps a claimed job ours: a thread that does nothing but renew the lease, so that a slow tick cannot lose it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from autotuner.domain.errors import AutotunerError
from autotuner.scheduling.periodic import Periodic
from autotuner.storage.database import Database
from autotuner.storage.jobs import Claim

_log = logging.getLogger(__name__)


class LeaseKeeper(Periodic):
    """A block in which the lease of `claim` is renewed every third of its length.

    `lost` is set when another worker took the job over, or when it could not be renewed in time: from then on nothing
    may be written for the job, and its fence sees to it that nothing can.
    """

    def __init__(
        self, claim: Claim, *, database: Database, clock: Callable[[], datetime], lease_seconds: float
    ) -> None:
        super().__init__(self._renew, interval_seconds=lease_seconds / 3, name=f"lease-{claim.job_id}")
        self._claim = claim
        self._database = database
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._missed = 0
        self.lost = threading.Event()

    def _renew(self) -> bool:
        try:
            with self._database.write() as store:
                renewed = store.jobs.renew(self._claim, now=self._clock(), lease_seconds=self._lease_seconds)
            self._missed = 0
        except AutotunerError as error:
            # The database may be locked or restarting; two misses later the lease has run out for everyone.
            _log.warning("could not renew the lease of job %s: %s", self._claim.job_id, error)
            self._missed += 1
            renewed = self._missed < 2
        if not renewed:
            _log.error("lost the lease of job %s", self._claim.job_id)
            self.lost.set()
        return renewed
