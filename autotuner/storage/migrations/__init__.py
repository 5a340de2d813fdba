"""Alembic's environment and the steps of the schema; run through `autotuner.storage.migrate`."""
