"""Old rows: fields that came and went, upgrade steps, and rows from the future."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text

from autotuner.domain.errors import StorageUnavailable
from autotuner.domain.job import TuningJob
from autotuner.domain.measurement import Failure, Measurement
from autotuner.storage.database import Database
from autotuner.storage.reader import SCHEMA, pack, unpack
from tests.support.storage import add_job, measurement, tuning_job


@pytest.mark.parametrize("value", [tuning_job(), measurement(), Failure(kind="crash", message="m")])
def test_a_value_is_read_back_equal(value: Any) -> None:
    packed = json.loads(json.dumps(pack(value)))
    assert packed["_schema"] == SCHEMA
    assert unpack(type(value), packed) == value


def test_fields_that_no_longer_exist_are_dropped_at_every_depth() -> None:
    data = pack(tuning_job())
    data["gone"] = 1
    data["model"]["gone"] = {"a": 1}
    data["cluster"]["device"]["peak_flops"]["int4"] = 1e15
    assert unpack(TuningJob, data) == tuning_job()


def test_fields_that_are_new_get_their_defaults() -> None:
    data = pack(measurement())
    for name in ("breakdown_seconds", "losses", "runs", "environment", "_schema"):
        del data[name]
    assert unpack(Measurement, data) == measurement()


def test_equivalent_types_are_accepted() -> None:
    assert unpack(Failure, {"kind": "crash", "message": "m", "rank": "3"}).rank == 3


def test_steps_lead_from_the_schema_a_row_has_to_the_current_one() -> None:
    def rename(data: dict[str, Any]) -> dict[str, Any]:
        return {"kind": data["what"], "message": data["message"]}

    def shout(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "message": data["message"].upper()}

    steps = {("Failure", 1): rename, ("Failure", 3): shout}
    old = {"_schema": 1, "what": "hang", "message": "m"}
    assert unpack(Failure, old, steps=steps, schema=4) == Failure(kind="hang", message="M")
    newer = {"_schema": 4, "kind": "hang", "message": "m"}
    assert unpack(Failure, newer, steps=steps, schema=4) == Failure(kind="hang", message="m")


def test_a_row_from_the_future_is_refused() -> None:
    with pytest.raises(StorageUnavailable, match="a stored Failure has schema 99 and this version reads up to 1"):
        unpack(Failure, {"_schema": 99, "kind": "hang", "message": "m"})


def test_a_row_that_makes_no_sense_is_refused_with_the_field() -> None:
    with pytest.raises(StorageUnavailable, match="a stored Failure cannot be read: kind: "):
        unpack(Failure, {"kind": "boredom", "message": "m"})


def test_a_job_of_an_older_version_is_still_listed(database: Database) -> None:
    with database.write() as store:
        add_job(store, "j1")
    with database._writer.begin() as connection:
        spec = json.loads(connection.execute(text("SELECT spec FROM autotuner_jobs")).scalar_one())
        del spec["measure"], spec["model"]["name"], spec["_schema"]
        spec["measure"] = {"discard_steps": 2}
        connection.execute(text("UPDATE autotuner_jobs SET spec = :spec"), {"spec": json.dumps(spec)})
    with database.read() as store:
        (job,) = store.jobs.list(state=None, limit=9, before_id=None)
    assert job.spec == tuning_job()
