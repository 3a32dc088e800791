"""Options of the decoder whose text is the same for all commands."""

from __future__ import annotations

__all__ = ["DEVICE_HELP", "EFFORT_HELP"]

DEVICE_HELP = (
    "Where to decode: cpu, cuda, cuda:1, mps, or auto for the fastest there is. One without "
    "float64 leaves it to the CPU."
)

EFFORT_HELP = (
    "How long to search, with the row cascade, for samples that no neuron isolates; 0 for peeling "
    "alone."
)
