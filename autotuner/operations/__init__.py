"""Use cases: what an entry point may ask for."""

from autotuner.operations.jobs import Operations as Operations
