from autotuner.operations.jobs import Operations as Operations
