"""Measurements behind what the documentation claims; run as `python -m benchmarks.NAME`."""
