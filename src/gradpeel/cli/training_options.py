"""Options of a client that trains locally, as every command names them."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["LocalBatchSize", "LocalEpochs", "LocalSteps", "Lr", "Momentum", "WeightDecay"]

PANEL = "Local training (FedAvg)"

Lr = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="Learning rate of the client's SGD: it trains locally and sends the difference of "
        "weights.",
        show_default="none: it sends the gradient of its batch",
        rich_help_panel=PANEL,
    ),
]
LocalSteps = Annotated[
    int | None,
    typer.Option(
        "--local-steps",
        help="Number of local steps.",
        show_default="one epoch",
        rich_help_panel=PANEL,
    ),
]
LocalEpochs = Annotated[
    int | None,
    typer.Option(
        "--local-epochs",
        help="How often the client goes through its batch, instead of a number of steps.",
        show_default="once",
        rich_help_panel=PANEL,
    ),
]
LocalBatchSize = Annotated[
    int | None,
    typer.Option(
        "--local-batch-size",
        help="Samples per local step, drawn again for every epoch.",
        show_default="all",
        rich_help_panel=PANEL,
    ),
]
Momentum = Annotated[
    float,
    typer.Option("--momentum", help="Momentum, from 0 to below 1.", rich_help_panel=PANEL),
]
WeightDecay = Annotated[
    float,
    typer.Option("--weight-decay", help="Weight decay, at least 0.", rich_help_panel=PANEL),
]
