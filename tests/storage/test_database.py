"""The database: transactions, concurrency, what is refused, and when news is noticed."""

from __future__ import annotations

import math
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from autotuner.domain.errors import InvalidInput, StorageUnavailable
from autotuner.storage import sqlite
from autotuner.storage.database import Database
from tests.support.storage import T0, add_job, add_trial, later, sqlite_url


class Stop(Exception):
    """Ends a block from inside."""


def test_an_exception_rolls_back_rows_and_events_together(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
        before = store.events.last_id()

    def write_and_stop() -> None:
        with database.write() as store:
            add_trial(store, "t1", job_id="j1")
            store.jobs.set_state("j1", "running", now=T0)
            assert store.events.last_id() == before + 2
            raise Stop

    with pytest.raises(Stop):
        write_and_stop()
    with database.read() as store:
        assert store.events.last_id() == before
        assert store.trials.list("j1") == []
        assert store.jobs.get("j1").state == "queued"


def test_read_modify_write_loses_no_update(database: Database) -> None:
    with database.write() as store:
        store.calibrations.put("count", {"n": 0}, now=T0)

    def add_thirty(_: int) -> None:
        for _ in range(30):
            with database.write() as store:
                found = store.calibrations.get("count")
                assert found is not None
                store.calibrations.put("count", {"n": found["n"] + 1}, now=T0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_thirty, range(4)))
    with database.read() as store:
        assert store.calibrations.get("count") == {"n": 120}


def test_a_reader_sees_one_moment_and_does_not_wait_for_a_writer(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
    with database.read() as reader:
        assert reader.jobs.get("j1").state == "queued"
        with database.write() as writer:
            writer.jobs.set_state("j1", "running", now=T0)
            assert reader.jobs.get("j1").state == "queued"
        assert reader.jobs.get("j1").state == "queued"
    with database.read() as reader:
        assert reader.jobs.get("j1").state == "running"


def test_a_read_block_cannot_write(database: Database) -> None:
    with pytest.raises(StorageUnavailable, match=r"readonly|read-only"), database.read() as store:
        add_job(store, "j1")


def test_a_writer_that_never_ends_is_reported(database: Database, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.05)
    with (
        Database.connect(sqlite_url(tmp_path)) as impatient,
        database.write(),
        pytest.raises(StorageUnavailable, match="another process has been writing"),
        impatient.write(),
    ):
        pass


def test_times_come_back_in_utc_whatever_zone_they_were_given_in(database: Database) -> None:
    berlin = timezone(timedelta(hours=2))
    with database.write() as store:
        add_job(store, "j1", now=datetime(2026, 7, 1, 12, 0, 0, 5, tzinfo=berlin))
    with database.read() as store:
        found = store.jobs.get("j1").created_at
    # 12:00 at +02:00 is 10:00 UTC.
    assert found == datetime(2026, 7, 1, 10, 0, 0, 5, tzinfo=UTC)
    assert found.tzinfo is UTC


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(InvalidInput, match="2026-07-01T12:00:00 has no zone"), database.write() as store:
        add_job(store, "j1", now=datetime(2026, 7, 1, 12, 0, 0))  # noqa: DTZ001


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_has_not_are_refused(database: Database, number: float) -> None:
    with pytest.raises(InvalidInput, match="not JSON compliant"), database.write() as store:
        store.calibrations.put("k", {"x": number}, now=T0)
    with database.write() as store:
        add_job(store, "j1")
    with pytest.raises(InvalidInput, match="not JSON compliant"), database.write() as store:
        store.events.append("j1", "job.note", trial_id=None, data={"x": [number]}, now=T0)


def test_objects_that_json_has_not_are_refused(database: Database) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be stored as JSON.*datetime"), database.write() as store:
        store.calibrations.put("k", {"x": T0}, now=T0)


def test_wal_and_foreign_keys_are_on(database: Database) -> None:
    with database._writer.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    # synchronous 1 is NORMAL.
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 10_000, "synchronous": 1}


def test_a_change_is_noticed_by_its_token(database: Database, tmp_path: Path) -> None:
    first = database.changed_since(0)
    assert database.changed_since(first) == first
    with database.read() as store:
        store.events.last_id()
    assert database.changed_since(first) == first
    with database.write() as store:
        add_job(store, "j1")
    second = database.changed_since(first)
    assert second != first
    # Another process's connection.
    with Database.connect(sqlite_url(tmp_path)) as other, other.write() as store:
        store.jobs.set_state("j1", "running", now=T0)
    assert database.changed_since(second) != second


def test_many_threads_may_ask_for_changes(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(database.changed_since, [0] * 100))
    assert len(tokens) == 1


def test_forty_threads_may_read_at_once(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
    everyone = threading.Barrier(40, timeout=30)

    def read(_: int) -> str:
        with database.read() as store:
            everyone.wait()
            return store.jobs.get("j1").id

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(read, range(40))) == ["j1"] * 40


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://u:secret@h/db", r"driver mysql is not supported.*write sqlite:////path"),
        ("postgresql://u:secret@h/db", r"driver postgresql is not supported.*write postgresql\+psycopg://"),
        ("postgres://u:secret@h/db", r"write postgresql\+psycopg://"),
        ("sqlite+aiosqlite:///x.db", r"driver sqlite\+aiosqlite is not supported"),
        ("sqlite://", "it must be a file"),
        ("sqlite:///:memory:", "it must be a file"),
        ("sqlite:///file:x?uri=true", "it must be a file"),
        ("not a url", "cannot be read"),
    ],
)
def test_other_databases_are_refused_with_the_fix(url: str, told: str) -> None:
    with pytest.raises(StorageUnavailable, match=told) as refusal:
        Database.open(url)
    assert "secret" not in str(refusal.value)


def test_missing_folders_are_made(tmp_path: Path) -> None:
    Database.open(sqlite_url(tmp_path / "a" / "b")).close()
    assert (tmp_path / "a" / "b" / "autotuner.db").is_file()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable, match=r"cannot be made.*AUTOTUNER_DATA_DIR"):
        Database.open(sqlite_url(tmp_path / "file" / "folder"))


def test_an_unwritable_folder_is_refused(tmp_path: Path, monkeypatch) -> None:
    # The tests may run as root, whom no mode keeps out.
    monkeypatch.setattr(sqlite.os, "access", lambda _path, _mode: False)
    with pytest.raises(StorageUnavailable, match=r"is not writable; set AUTOTUNER_DATA_DIR"):
        Database.open(sqlite_url(tmp_path))


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autotuner.db").mkdir()
    with pytest.raises(StorageUnavailable, match="is not a file"):
        Database.open(sqlite_url(tmp_path))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autotuner.db").write_text("hello, this is no database at all\n" * 50)
    with pytest.raises(StorageUnavailable, match="file is not a database"):
        Database.open(sqlite_url(tmp_path))


def test_tables_that_are_missing_are_named_with_the_fix(tmp_path: Path) -> None:
    with Database.connect(sqlite_url(tmp_path)) as database:
        assert database.revision() is None
        assert not database.is_current()
        with pytest.raises(StorageUnavailable, match="autotuner db upgrade"), database.read() as store:
            store.jobs.get("j1")


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    mounts = "d / ext4 rw 0 0\ns /data nfs4 rw 0 0\nd /data/local\\040disk xfs rw 0 0\nbroken\n"
    assert sqlite.file_system(Path("/home/u"), mounts=mounts) == "ext4"
    assert sqlite.file_system(Path("/data/x"), mounts=mounts) == "nfs4"
    assert sqlite.file_system(Path("/database"), mounts=mounts) == "ext4"
    assert sqlite.file_system(Path("/data/local disk/x"), mounts=mounts) == "xfs"
    assert sqlite.file_system(Path("/data"), mounts="") == ""


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = f"d / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n"
    with pytest.raises(StorageUnavailable, match="lies on nfs4, where SQLite files get damaged"):
        sqlite.prepare_file(tmp_path / "autotuner.db", mounts=mounts)
    assert not (tmp_path / "autotuner.db").exists()


def test_events_are_read_after_an_id_of_one_job_or_all(database: Database) -> None:
    with database.write() as store:
        assert store.events.last_id() == 0
        for number, job_id in enumerate(("j1", "j2", "j1x")):
            add_job(store, job_id, now=later(number))
        ids = [event.id for event in store.events.after(0, job_id=None, limit=9)]
        assert ids == sorted(set(ids))
        assert store.events.last_id() == ids[-1]
        assert [e.job_id for e in store.events.after(ids[0], job_id=None, limit=1)] == ["j2"]
        assert [e.job_id for e in store.events.after(0, job_id="j1", limit=9)] == ["j1"]
        assert store.events.after(ids[-1], job_id=None, limit=9) == []


def test_workers_are_listed_while_they_beat(database: Database) -> None:
    with database.write() as store:
        store.workers.beat("w1", host="a", version="1", devices=2, now=T0)
        store.workers.beat("w2", host="b", version="1", devices=4, now=later(5))
        store.workers.beat("w1", host="a", version="2", devices=3, now=later(60))
        alive = store.workers.list(now=later(65), alive_within_seconds=10)
        assert [(w.id, w.version, w.devices, w.started_at, w.heartbeat_at) for w in alive] == [
            ("w1", "2", 3, T0, later(60))
        ]
        assert [w.id for w in store.workers.list(now=later(65), alive_within_seconds=60)] == ["w1", "w2"]
        store.workers.remove("w1")
        assert [w.id for w in store.workers.list(now=later(65), alive_within_seconds=60)] == ["w2"]


def test_a_calibration_is_replaced_by_a_newer_one(database: Database) -> None:
    with database.write() as store:
        assert store.calibrations.get("k") is None
        store.calibrations.put("k", {"a": 1}, now=T0)
        store.calibrations.put("k", {"b": [2.5]}, now=later(1))
        assert store.calibrations.get("k") == {"b": [2.5]}


def test_closing_leaves_no_journal_behind(tmp_path: Path) -> None:
    database = Database.open(sqlite_url(tmp_path))
    database.changed_since(0)
    with database.write() as store:
        add_job(store, "j1")
    database.close()
    # SQLite removes the write-ahead log when the last connection is closed: so all of them were.
    assert [path.name for path in tmp_path.iterdir()] == ["autotuner.db"]
    with closing(sqlite3.connect(tmp_path / "autotuner.db")) as connection:
        assert connection.execute("SELECT count(*) FROM autotuner_jobs").fetchone() == (1,)
