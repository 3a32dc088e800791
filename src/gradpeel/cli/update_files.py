"""What a client sent, from files: an update with its model, or the weights before and after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradpeel.cli.model_files import load_model
from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from gradpeel.update import Reduction, Update

__all__ = [
    "After",
    "Before",
    "LocalSteps",
    "Lr",
    "Model",
    "Sent",
    "UpdateFile",
    "WeightDecay",
]

UpdateFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[UPDATE]",
        help="Gradients by parameter name, .safetensors or .npz; or give --before and --after.",
        show_default=False,
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="The weights that the client received: a multilayer perceptron with ReLU, or its "
        "first layers if the tail is unknown, .safetensors or .npz.",
        show_default=False,
    ),
]
Before = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="Instead of UPDATE and --model: the weights that the client received.",
        show_default=False,
    ),
]
After = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="The weights that it returned after training with SGD; of Adam only signs are left.",
        show_default=False,
    ),
]
Lr = Annotated[
    float | None, typer.Option(help="Its learning rate, with --after.", show_default="unknown")
]
LocalSteps = Annotated[
    int | None,
    typer.Option(help="Number of its local steps, with --after.", show_default="unknown"),
]
WeightDecay = Annotated[
    float | None,
    typer.Option(help="Its weight decay, with --after.", show_default="found in the last layer"),
]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What was given on the command line.

    Raises:
        InputError: options that do not go together.
    """

    update: Path | None
    model: Path | None
    before: Path | None = None
    after: Path | None = None
    lr: float | None = None
    local_steps: int | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if (self.before is None) != (self.after is None):
            raise InputError("before, after: expected both or neither")
        if self.after is not None and not (self.update is None and self.model is None):
            raise InputError("after: expected --before, and neither UPDATE nor --model")
        if self.after is None:
            if self.update is None or self.model is None:
                raise InputError("expected UPDATE and --model, or --before and --after")
            for name in ("lr", "local_steps", "weight_decay"):
                if (value := getattr(self, name)) is not None:
                    raise InputError(f"{name}={value}: expected only with --after")

    def load(
        self, *, batch_size: int | None = None, reduction: Reduction | None = None
    ) -> tuple[nn.Sequential, Update]:
        """Read the network as the client received it, and what it sent.

        Args:
            batch_size: number of samples behind the update, if it was given.
            reduction: whether the loss was a mean or a sum, if it was given.
        """
        from gradpeel.update import Update, load_tensors, load_update  # noqa: PLC0415

        if self.update is not None and self.model is not None:
            network = load_model(self.model)
            return network, load_update(self.update, batch_size=batch_size, reduction=reduction)
        if self.before is None or self.after is None:
            raise InputError("before, after: expected both or neither")
        network = load_model(self.before)
        returned, _ = load_tensors(self.after)
        sent = Update.from_weights(
            network,
            returned,
            lr=self.lr,
            steps=self.local_steps,
            weight_decay=self.weight_decay,
            batch_size=batch_size,
            reduction=reduction or "mean",
        )
        return network, sent
