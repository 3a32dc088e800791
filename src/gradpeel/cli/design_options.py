"""Options of what a simulated server does to the layer, as several commands have them."""

from __future__ import annotations

from typing import Annotated

import typer

from gradpeel.cli.decoder_options import PANEL as ATTACK
from gradpeel.designs.options import DesignName, InitName, WeightsName

__all__ = ["ATTACK", "DesignChoice", "Init", "Scale", "Soliton", "Weights"]

DesignChoice = Annotated[
    DesignName,
    typer.Option(help="How the server sets the first layer.", rich_help_panel=ATTACK),
]
Init = Annotated[
    InitName | None,
    typer.Option(
        help="Initialisation with passive: the paper's, or PyTorch's default.",
        show_default="paper",
        rich_help_panel=ATTACK,
    ),
]
Weights = Annotated[
    WeightsName | None,
    typer.Option(
        help="Weight construction of the designs that have one.",
        show_default="independent",
        rich_help_panel=ATTACK,
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        help="Factor on the positive weights of trap-weights, above 0 and at most 1.",
        show_default="0.99",
        rich_help_panel=ATTACK,
    ),
]
Soliton = Annotated[
    str | None,
    typer.Option(
        metavar="C,DELTA",
        help="Parameters of the soliton designs' degree distribution.",
        show_default="0.05,0.4",
        rich_help_panel=ATTACK,
    ),
]
