"""First tables: jobs, trials, runs, events, calibrations, workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables, those that others refer to first."""
    _create_jobs()
    _create_trials()
    _create_runs()
    _create_events()
    _create_calibrations()
    _create_workers()


def downgrade() -> None:
    """Drop all tables and what is in them."""
    for name in ("workers", "calibrations", "events", "runs", "trials", "jobs"):
        op.drop_table(f"autotuner_{name}")


def _create_jobs() -> None:
    op.create_table(
        "autotuner_jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("desired_state", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("rejections", sa.JSON(), nullable=False),
        sa.Column("best_tokens_per_second", sa.Float(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped_because", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotuner_jobs")),
    )
    op.create_index(op.f("ix_autotuner_jobs_created_at_id"), "autotuner_jobs", ["created_at", "id"])
    op.create_index(op.f("ix_autotuner_jobs_state_created_at"), "autotuner_jobs", ["state", "created_at"])


def _create_trials() -> None:
    op.create_table(
        "autotuner_trials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("estimate", sa.JSON(), nullable=True),
        sa.Column("measurement", sa.JSON(), nullable=True),
        sa.Column("failure", sa.JSON(), nullable=True),
        sa.Column("tokens_per_second", sa.Float(), nullable=True),
        sa.Column("step_seconds", sa.Float(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["autotuner_jobs.id"], name=op.f("fk_autotuner_trials_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotuner_trials")),
        sa.UniqueConstraint("job_id", "key", name=op.f("uq_autotuner_trials_job_id_key")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_autotuner_trials_job_id_number")),
    )
    op.create_index(op.f("ix_autotuner_trials_job_id_state"), "autotuner_trials", ["job_id", "state"])


def _create_runs() -> None:
    op.create_table(
        "autotuner_runs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("measurement", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["autotuner_jobs.id"], name=op.f("fk_autotuner_runs_job_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["autotuner_trials.id"], name=op.f("fk_autotuner_runs_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_autotuner_runs")),
        sa.UniqueConstraint("trial_id", "attempt", name=op.f("uq_autotuner_runs_trial_id_attempt")),
    )
    op.create_index(op.f("ix_autotuner_runs_job_id_state"), "autotuner_runs", ["job_id", "state"])
    op.create_index(op.f("ix_autotuner_runs_state"), "autotuner_runs", ["state"])


def _create_events() -> None:
    op.create_table(
        "autotuner_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["autotuner_jobs.id"], name=op.f("fk_autotuner_events_job_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["autotuner_trials.id"], name=op.f("fk_autotuner_events_trial_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotuner_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_autotuner_events_job_id_id"), "autotuner_events", ["job_id", "id"])
    op.create_index(op.f("ix_autotuner_events_trial_id"), "autotuner_events", ["trial_id"])


def _create_calibrations() -> None:
    op.create_table(
        "autotuner_calibrations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_autotuner_calibrations")),
    )


def _create_workers() -> None:
    op.create_table(
        "autotuner_workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotuner_workers")),
    )
    op.create_index(op.f("ix_autotuner_workers_heartbeat_at"), "autotuner_workers", ["heartbeat_at"])
