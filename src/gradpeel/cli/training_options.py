"""Options of a client that trains locally or defends itself, as every command names them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gradpeel.cli.data_options import ROUND

__all__ = [
    "Defences",
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
Defences = Annotated[
    str,
    typer.Option(
        "--defences",
        "--defence",
        metavar="NAME:VALUE",
        help="What the client does to its update before it sends it: clip:1, dp:1,0.5 (clip "
        "every sample's gradient, add noise), noise:0.01, relative-noise:0.01, top-k:0.1, "
        "sign, int8, float16, bfloat16, guard, or several joined by +.",
        rich_help_panel=ROUND,
    ),
]
