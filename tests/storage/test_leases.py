"""Claims: each job has one driver, and one that lost its lease can write nothing."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.dialects import postgresql

from autotuner.domain.errors import Conflict
from autotuner.storage.database import Database
from autotuner.storage.jobs import LeaseLost
from autotuner.storage.leases import claim_statement
from tests.support.storage import T0, add_job, later


def test_the_oldest_job_is_claimed_first_and_its_state_stays(database: Database) -> None:
    with database.write() as store:
        add_job(store, "a", now=later(2))
        add_job(store, "b", now=later(1))
        claim = store.jobs.claim("w1", now=later(3), lease_seconds=30)
        assert claim is not None
        assert (claim.job_id, claim.owner, claim.fence, claim.job.state) == ("b", "w1", 1, "queued")
        second = store.jobs.claim("w2", now=later(3), lease_seconds=30)
        assert second is not None
        assert second.job_id == "a"
        assert store.jobs.claim("w3", now=later(3), lease_seconds=30) is None


@pytest.mark.parametrize(
    ("states", "claimed"),
    [
        ([], True),
        (["running"], True),
        (["running", "cancelling"], True),
        (["paused"], False),
        (["running", "completed"], False),
        (["failed"], False),
        (["cancelled"], False),
    ],
)
def test_only_jobs_with_work_left_are_claimed(database: Database, states: list, claimed: bool) -> None:
    with database.write() as store:
        add_job(store, "j1")
        for state in states:
            store.jobs.set_state("j1", state, now=T0)
        assert (store.jobs.claim("w1", now=T0, lease_seconds=30) is not None) is claimed


def test_a_job_is_taken_over_exactly_when_its_lease_has_run_out(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        store.jobs.claim("w1", now=T0, lease_seconds=30)
        store.jobs.set_state("j1", "running", now=T0)
        assert store.jobs.claim("w2", now=later(29.999), lease_seconds=30) is None
        taken = store.jobs.claim("w2", now=later(30), lease_seconds=30)
        assert taken is not None
        assert (taken.owner, taken.fence) == ("w2", 2)


def test_a_renewed_lease_holds_longer(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        claim = store.jobs.claim("w1", now=T0, lease_seconds=30)
        assert claim is not None
        assert store.jobs.renew(claim, now=later(20), lease_seconds=30)
        # 20 + 30 = 50
        assert store.jobs.claim("w2", now=later(49), lease_seconds=30) is None
        assert store.jobs.claim("w2", now=later(50), lease_seconds=30) is not None


def test_a_lost_lease_writes_nothing(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        old = store.jobs.claim("w1", now=T0, lease_seconds=30)
        new = store.jobs.claim("w2", now=later(31), lease_seconds=30)
    assert old is not None
    assert new is not None
    with database.write() as store:
        assert not store.jobs.renew(old, now=later(32), lease_seconds=30)
        store.jobs.release(old)
        store.jobs.check_fence(new)

    def fail_the_job() -> None:
        with database.write() as store:
            store.jobs.check_fence(old)
            store.jobs.set_state("j1", "failed", now=later(33))

    with pytest.raises(LeaseLost, match="held by w2 with fence 2, no longer by w1 with fence 1"):
        fail_the_job()
    with database.read() as store:
        assert store.jobs.get("j1").state == "queued"


def test_the_fence_tells_two_claims_of_one_worker_apart(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        old = store.jobs.claim("w1", now=T0, lease_seconds=30)
        new = store.jobs.claim("w1", now=later(31), lease_seconds=30)
        assert old is not None
        assert new is not None
        store.jobs.check_fence(new)
        with pytest.raises(Conflict):
            store.jobs.check_fence(old)


def test_a_released_job_is_free_at_once(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        claim = store.jobs.claim("w1", now=T0, lease_seconds=30)
        assert claim is not None
        store.jobs.release(claim)
        with pytest.raises(LeaseLost, match="held by nobody"):
            store.jobs.check_fence(claim)
        assert store.jobs.claim("w2", now=T0, lease_seconds=30) is not None


def test_a_deleted_job_is_lost(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        claim = store.jobs.claim("w1", now=T0, lease_seconds=30)
        assert claim is not None
        store.jobs.set_state("j1", "cancelled", now=T0)
        store.jobs.delete("j1")
        with pytest.raises(LeaseLost, match="was deleted"):
            store.jobs.check_fence(claim)


def test_four_workers_share_fifty_jobs_without_taking_one_twice(database: Database) -> None:
    with database.write() as store:
        for number in range(50):
            add_job(store, f"j{number:02}", now=later(number))

    def claim_all(owner: str) -> list[str]:
        claimed = []
        while True:
            with database.write() as store:
                claim = store.jobs.claim(owner, now=later(100), lease_seconds=30)
            if claim is None:
                return claimed
            claimed.append(claim.job_id)

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(claim_all, ["w0", "w1", "w2", "w3"]))
    times_claimed = Counter(job_id for share in shares for job_id in share)
    assert times_claimed == {f"j{number:02}": 1 for number in range(50)}


def test_postgresql_skips_rows_that_other_workers_have_locked() -> None:
    text = str(claim_statement("w", now=T0, lease_seconds=1).compile(dialect=postgresql.dialect()))
    assert "LIMIT %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED)" in " ".join(text.split())
