"""From the options of the commands to what the client minimises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gradpeel.cli.data_options import ROUND
from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from gradpeel.losses import Loss

__all__ = [
    "LabelSmoothing",
    "LossChoice",
    "LossName",
    "LossOptions",
    "Reduction",
    "ReductionName",
]


class LossName(StrEnum):
    """What the client minimises."""

    CROSS_ENTROPY = "cross-entropy"
    MEAN_SQUARED_ERROR = "mean-squared-error"
    BINARY_CROSS_ENTROPY = "binary-cross-entropy"


class ReductionName(StrEnum):
    """What the client's loss is over its batch."""

    MEAN = "mean"
    SUM = "sum"


LossChoice = Annotated[
    LossName,
    typer.Option(
        help="The loss that the client minimises; for losses other than cross-entropy the "
        "target is 1 for the label and 0 for all other classes.",
        rich_help_panel=ROUND,
    ),
]
LabelSmoothing = Annotated[
    float,
    typer.Option(
        help="Label smoothing of the cross-entropy, from 0 to below 1.", rich_help_panel=ROUND
    ),
]
Reduction = Annotated[
    ReductionName,
    typer.Option(help="Whether the loss is a mean or a sum.", rich_help_panel=ROUND),
]


@dataclass(frozen=True)
class LossOptions:
    """A loss's name and settings as they were given.

    Raises:
        InputError: label smoothing for a loss that has none.

    Example:
        >>> LossOptions(LossName.MEAN_SQUARED_ERROR, label_smoothing=0.1)
        Traceback (most recent call last):
        gradpeel.errors.InputError: label_smoothing=0.1: loss mean-squared-error has no
        label_smoothing; cross-entropy has
    """

    loss: LossName = LossName.CROSS_ENTROPY
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.label_smoothing and self.loss is not LossName.CROSS_ENTROPY:
            raise InputError(
                f"label_smoothing={self.label_smoothing}: loss {self.loss} has no label_smoothing; "
                f"{LossName.CROSS_ENTROPY} has"
            )

    def build(self) -> Loss:
        """Make the loss.

        Raises:
            InputError: a setting breaks its rule.
        """
        from gradpeel.losses import (  # noqa: PLC0415 -- torch is slow to import; --help need not wait
            BinaryCrossEntropy,
            CrossEntropy,
            MeanSquaredError,
        )

        match self.loss:
            case LossName.CROSS_ENTROPY:
                return CrossEntropy(self.label_smoothing)
            case LossName.MEAN_SQUARED_ERROR:
                return MeanSquaredError()
            case LossName.BINARY_CROSS_ENTROPY:
                return BinaryCrossEntropy()

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """What the loss compares with, from class labels, (batch,).

        Returns:
            The labels for the cross-entropy; a one for the label and zeros for the other classes,
            (batch, classes), for the others.
        """
        from torch.nn import functional  # noqa: PLC0415

        if self.loss is LossName.CROSS_ENTROPY:
            return labels
        return functional.one_hot(labels, classes).double()
