"""What a layout costs in memory and time: pure functions from domain values to estimates, numpy over candidates."""
