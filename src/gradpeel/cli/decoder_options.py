"""Options of the decoder whose text is the same for all commands."""

from __future__ import annotations

__all__ = ["DEVICE_HELP", "EFFORT_HELP"]

DEVICE_HELP = (
    "Where to decode: cpu, cuda, cuda:1, mps, or auto for the fastest available. A device without "
    "float64 leaves that part to the CPU."
)

EFFORT_HELP = (
    "How long the row cascade searches for samples that no neuron isolates; 2 doubles the "
    "search, 0 is peeling alone."
)
