"""The option that says where to decode; the text is the same for all commands."""

from __future__ import annotations

__all__ = ["DEVICE_HELP"]

DEVICE_HELP = (
    "Where to decode: cpu, cuda, cuda:1, mps, or auto for the fastest there is. One without "
    "float64 leaves it to the CPU."
)
