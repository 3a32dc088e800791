"""Options of the decoder that several commands have, under the same names."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["DataRange", "Device", "Effort", "KnowsTail", "LayerName"]

PANEL = "The attack"

Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where to decode: cpu, cuda, cuda:1, mps, or auto for the fastest available. A "
        "device without float64 leaves that part to the CPU.",
        rich_help_panel=PANEL,
    ),
]
Effort = Annotated[
    float,
    typer.Option(
        "--effort",
        help="How long the row cascade searches for samples that no neuron isolates; 2 doubles the "
        "search, 0 is peeling alone.",
        rich_help_panel=PANEL,
    ),
]
KnowsTail = Annotated[
    bool,
    typer.Option(
        "--knows-tail/--unknown-tail",
        help="Whether the decoder knows the loss and everything behind the second layer; "
        "otherwise it finds no labels.",
        rich_help_panel=PANEL,
    ),
]
DataRange = Annotated[
    str | None,
    typer.Option(
        "--data-range",
        metavar="LOW,HIGH",
        help="Smallest and largest possible value of a feature; samples outside are rejected.",
        show_default="unknown",
        rich_help_panel=PANEL,
    ),
]
LayerName = Annotated[
    str | None,
    typer.Option(
        "--layer",
        metavar="NAME",
        help="The layer whose gradient is read, such as 3 or fc2. For a later layer than the "
        "first, feature vectors come back: the inputs of that layer.",
        show_default="the first that can be read",
        rich_help_panel=PANEL,
    ),
]
