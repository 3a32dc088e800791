"""Options of a client that trains locally or adds noise, as every command names them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gradpeel.cli.data_options import ROUND

__all__ = [
    "LocalBatchSize",
    "LocalEpochs",
    "LocalSteps",
    "Lr",
    "Momentum",
    "Noise",
    "WeightDecay",
    "training_option",
]


def training_option(name: str, text: str, *, show_default: str | bool = True) -> Any:  # noqa: ANN401 -- as typer.Option
    """An option in the panel of local training."""
    return typer.Option(
        name, help=text, show_default=show_default, rich_help_panel="Local training (FedAvg)"
    )


Lr = Annotated[
    float | None,
    training_option(
        "--lr",
        "Learning rate of the client's SGD: it trains locally and sends the difference of weights.",
        show_default="none: it sends the gradient of its batch",
    ),
]
LocalSteps = Annotated[
    int | None,
    training_option("--local-steps", "Number of local steps.", show_default="one epoch"),
]
LocalEpochs = Annotated[
    int | None,
    training_option(
        "--local-epochs",
        "Number of passes through the client's batch, instead of a number of steps.",
        show_default="once",
    ),
]
LocalBatchSize = Annotated[
    int | None,
    training_option(
        "--local-batch-size",
        "Samples per local step, drawn again for every epoch.",
        show_default="all",
    ),
]
Momentum = Annotated[float, training_option("--momentum", "Momentum, from 0 to below 1.")]
WeightDecay = Annotated[float, training_option("--weight-decay", "Weight decay, at least 0.")]
Noise = Annotated[
    float,
    typer.Option(
        help="Standard deviation of noise on the update, relative to that of each gradient.",
        rich_help_panel=ROUND,
    ),
]
