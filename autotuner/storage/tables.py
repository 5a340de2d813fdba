"""The tables: what is filtered or sorted is a column of its own, the rest is JSON of domain values.

Every name starts with `autotuner_`, because Optuna's tables (`trials`, `studies`, `alembic_version`, ...) may live in
the same database.  A change here needs a migration; `tests/storage/test_migrations.py` compares the two.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from autotuner.domain.estimate import Estimate
from autotuner.domain.job import TuningJob
from autotuner.domain.measurement import Failure, Measurement
from autotuner.domain.parallel import ParallelConfig
from autotuner.storage.types import UtcDateTime, ValueJson

PREFIX: Final = "autotuner_"

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

jobs = Table(
    f"{PREFIX}jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("desired_state", Text, nullable=False),
    Column("spec", ValueJson(TuningJob), nullable=False),
    Column("candidates", Integer, nullable=False),
    Column("rejections", JSON, nullable=False),
    Column("best_tokens_per_second", Float),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("stopped_because", Text, nullable=False),
    Column("error", Text, nullable=False),
    # Who drives the job and until when; `fence` counts claims, so that a worker that lost its lease cannot write.
    Column("lease_owner", Text),
    Column("lease_until", UtcDateTime),
    Column("fence", Integer, nullable=False),
    Index(None, "created_at", "id"),
    Index(None, "state", "created_at"),
)

trials = Table(
    f"{PREFIX}trials",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("config", ValueJson(ParallelConfig), nullable=False),
    Column("estimate", ValueJson(Estimate)),
    Column("measurement", ValueJson(Measurement)),
    Column("failure", ValueJson(Failure)),
    Column("tokens_per_second", Float),
    Column("step_seconds", Float),
    Column("peak_memory_bytes", BigInteger),
    Column("failure_kind", Text),
    Column("attempts", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    UniqueConstraint("job_id", "number"),
    UniqueConstraint("job_id", "key"),
    Index(None, "job_id", "state"),
)

runs = Table(
    f"{PREFIX}runs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("trial_id", Text, ForeignKey(trials.c.id, ondelete="CASCADE"), nullable=False),
    Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("state", Text, nullable=False),
    # What this run alone measured: the trial's pooled measurement can always be made again from these.
    Column("measurement", ValueJson(Measurement)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    UniqueConstraint("trial_id", "attempt"),
    Index(None, "job_id", "state"),
    Index(None, "state"),
)

events = Table(
    f"{PREFIX}events",
    metadata,
    # SQLite counts up by itself only in a column that is exactly INTEGER.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), nullable=False),
    Column("trial_id", Text, ForeignKey(trials.c.id, ondelete="CASCADE")),
    Column("kind", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "job_id", "id"),
    Index(None, "trial_id"),
    # Readers resume after the last id they saw: an id must not come back when the newest rows were deleted.
    sqlite_autoincrement=True,
)

calibrations = Table(
    f"{PREFIX}calibrations",
    metadata,
    Column("key", Text, primary_key=True),
    Column("payload", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

workers = Table(
    f"{PREFIX}workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("heartbeat_at", UtcDateTime, nullable=False),
    Index(None, "heartbeat_at"),
)
