"""The parallelism auto-tuner: finds, by measuring, the fastest 3D-parallel layout of a GPT training run."""

__version__ = "0.1.0"
