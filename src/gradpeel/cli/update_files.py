"""What a client sent, from files: an update with its model, or the weights before and after."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gradpeel.cli.model_files import load_model
from gradpeel.cli.training_options import Momentum, training_option
from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from gradpeel.training import LocalTraining
    from gradpeel.update import Reduction, Update

__all__ = ["Sent", "hint", "takes_update"]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What was given on the command line; its fields are the options, see `takes_update`.

    Raises:
        InputError: options that do not go together.
    """

    update: Annotated[
        Path | None,
        typer.Argument(
            metavar="[UPDATE]",
            help="Gradients by parameter name, .safetensors or .npz; or give --before and --after.",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="The weights that the client received: a multilayer perceptron with ReLU, or its "
            "first layers if the tail is unknown, .safetensors or .npz.",
            show_default=False,
        ),
    ] = None
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Instead of UPDATE and --model: the weights that the client received.",
            show_default=False,
        ),
    ] = None
    after: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="The weights that it returned after training locally with SGD, for one step or "
            "for many. Updates of other optimisers, such as Adam, cannot be decoded.",
            show_default=False,
        ),
    ] = None
    lr: Annotated[
        float | None,
        training_option(
            "--lr", "Learning rate of the client's SGD, with --after.", show_default="unknown"
        ),
    ] = None
    local_steps: Annotated[
        int | None,
        training_option(
            "--local-steps",
            "Number of local steps, with --after; a single one is decoded like a gradient.",
            show_default="unknown",
        ),
    ] = None
    momentum: Momentum = 0.0
    weight_decay: Annotated[
        float | None,
        training_option(
            "--weight-decay",
            "Weight decay, with --after.",
            show_default="estimated from the last layer",
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Number of samples behind the update.",
            show_default="what the file states, or estimated from the update",
        ),
    ] = None

    def __post_init__(self) -> None:
        if (self.before is None) != (self.after is None):
            raise InputError("before, after: expected both or neither")
        if self.after is not None and not (self.update is None and self.model is None):
            raise InputError("after: expected --before, and neither UPDATE nor --model")
        if self.after is None:
            if self.update is None or self.model is None:
                raise InputError("expected UPDATE and --model, or --before and --after")
            for name in ("lr", "local_steps", "momentum", "weight_decay"):
                if (value := getattr(self, name)) != getattr(Sent, name):
                    raise InputError(
                        f"{name}={value}: a setting of local training: expected with --before and "
                        "--after"
                    )
        elif self.weight_decay and (self.lr is None or self.local_steps is None):
            raise InputError(
                f"weight_decay={self.weight_decay}: cannot be undone without --lr and "
                "--local-steps: give both, or leave it out and have it found"
            )

    def load(self, *, reduction: Reduction | None = None) -> tuple[nn.Sequential, Update]:
        """Read the network as the client received it, and what it sent.

        Args:
            reduction: whether the loss was a mean or a sum, if it was given.
        """
        from gradpeel.update import Update, load_tensors, load_update  # noqa: PLC0415

        if self.update is not None and self.model is not None:
            network = load_model(self.model)
            sent = load_update(self.update, batch_size=self.batch_size, reduction=reduction)
            return network, sent
        if self.before is None or self.after is None:
            raise InputError("before, after: expected both or neither")
        network = load_model(self.before)
        returned, _ = load_tensors(self.after)
        sent = Update.from_weights(
            network,
            returned,
            lr=self.lr,
            steps=self.local_steps,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            reduction=reduction or "mean",
        )
        return network, sent


def takes_update(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what a client sent, in the place of its argument `sent`.

    Args:
        command: a command with keyword arguments only, one of them `sent`, a `Sent`.
    """

    @wraps(command)
    def with_options(**given: Any) -> None:  # noqa: ANN401 -- whatever the options are
        sent = Sent(**{field.name: given.pop(field.name) for field in fields(Sent)})
        command(sent=sent, **given)

    kinds = get_type_hints(Sent, include_extras=True)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=kinds[field.name],
        )
        for field in fields(Sent)
    ]
    listed: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        listed += options if parameter.name == "sent" else [parameter]
    with_options.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    return with_options


def hint(training: LocalTraining | None) -> str:
    """What to try with an update in which nothing was found, by how it was decoded.

    Args:
        training: the local training that the update was declared to be; None for a gradient.
    """
    if training is None:
        return (
            "This update was decoded as the gradient of one batch. If it is a difference of "
            "weights, as clients return it after local training, give the weights with --before "
            "and --after, and what you know of the training with --lr, --local-steps, --momentum "
            "and --weight-decay."
        )
    if training.steps is None:
        return (
            "The number of local steps is unknown. If there was only one, --local-steps 1 lets the "
            "decoder use the later layers too."
        )
    if training.is_one_step:
        return (
            "This update was decoded as the result of a single local step. If the client took "
            "several, give their number with --local-steps, or leave it out."
        )
    return (
        "After several local steps samples are read from the first layer alone. "
        "`gradpeel contains` may still tell whether given records took part."
    )
