"""Micro-benchmarks of the machine that a rank runs on: products, memory and messages."""
