"""Schedules: in which order a stage runs forward and backward of its micro-batches."""
