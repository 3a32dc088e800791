"""What a client minimises: cross-entropy as in PyTorch, and two losses without class labels.

The paper treats the cross-entropy with one label per sample (section "Label Recovery"). Label
smoothing and class weights change its gradient at the logits from p - e_y to t p - q, where q is
the target distribution of the label y and t its sum; with both settings known, labels can be read
as before. Mean squared error and binary cross-entropy yield no labels.

Example:
    >>> CrossEntropy(label_smoothing=0.3).targets(3)
    tensor([[0.8000, 0.1000, 0.1000],
            [0.1000, 0.8000, 0.1000],
            [0.1000, 0.1000, 0.8000]], dtype=torch.float64)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.checks import is_number
from gradpeel.errors import InputError

__all__ = ["BinaryCrossEntropy", "CrossEntropy", "Loss", "MeanSquaredError"]

_LABEL_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Loss(Protocol):
    """What a client minimises on a batch, summed or averaged as in PyTorch."""

    @property
    def name(self) -> str:
        """The loss's name on the command line and in reports, such as "cross-entropy"."""

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse outputs, (batch, outputs), and targets `y` that do not fit the loss.

        Raises:
            InputError: names what does not fit.
        """

    def total(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum of all samples' losses, a scalar; PyTorch's reduction="sum"."""

    def denominator(self, y: Tensor) -> float:
        """What the sum is divided by to give PyTorch's reduction="mean"."""


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy of softmax(outputs) with one class label per sample.

    Attributes:
        label_smoothing: the share of a label's mass spread evenly over all classes, from 0 to
            below 1.
        class_weights: one factor per class, at least 0; all 1 by default.

    Raises:
        InputError: a setting breaks its rule.

    Example:
        >>> loss = CrossEntropy(class_weights=(1.0, 3.0))
        >>> labels = torch.tensor([0, 1, 1])
        >>> loss.total(torch.zeros(3, 2), labels) / loss.denominator(labels)
        tensor(0.6931)
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    name: ClassVar[str] = "cross-entropy"

    def __post_init__(self) -> None:
        if not (is_number(self.label_smoothing) and 0 <= self.label_smoothing < 1):
            raise InputError(
                f"label_smoothing={self.label_smoothing!r}: expected a number from 0 to below 1"
            )
        weights: object = self.class_weights
        if weights is None:
            return
        if (
            not isinstance(weights, tuple)
            or not all(is_number(weight) and weight >= 0 for weight in weights)
            or not any(weights)
        ):
            raise InputError(
                f"class_weights={weights!r}: expected a tuple of numbers of at least 0, not all 0"
            )

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse anything but logits, (batch, classes), and one integer label per sample."""
        if outputs.ndim != 2:
            shape = tuple(outputs.shape)
            raise InputError(f"model: output shape {shape}: expected (batch, classes)")
        batch, classes = outputs.shape
        if y.shape != (batch,):
            raise InputError(
                f"y: shape {tuple(y.shape)}: expected one label for each of {batch} samples"
            )
        if y.dtype not in _LABEL_DTYPES:
            raise InputError(f"y: dtype {y.dtype}: expected integer class labels")
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= classes:
            raise InputError(f"y: labels {low}..{high}: the model has classes 0..{classes - 1}")
        self._weights(classes)
        if self.denominator(y) == 0:
            raise InputError("y: every label has class weight 0: expected one that counts")

    def total(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum of all samples' losses, from logits (batch, classes) and labels (batch,)."""
        return functional.cross_entropy(
            outputs,
            y.long(),
            weight=None if self.class_weights is None else self._weights(outputs.shape[1], outputs),
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )

    def denominator(self, y: Tensor) -> float:
        """The batch size; with class weights, the sum of the labels' weights."""
        if self.class_weights is None:
            return float(len(y))
        try:
            return math.fsum(self.class_weights[label] for label in y.tolist())
        except OverflowError:
            raise InputError("class_weights: their sum over the batch is too large") from None

    def targets(self, classes: int) -> Tensor:
        """The target distribution of each label, (classes, classes) float64.

        One sample's loss is -(Q[y] * log p).sum() with Q[y] the row of its label and
        p = softmax(logits), so its gradient at the logits is Q[y].sum() * p - Q[y].

        Raises:
            InputError: there are not as many class weights as classes.
        """
        weights = self._weights(classes)
        spread = weights.expand(classes, classes) * (self.label_smoothing / classes)
        return torch.diag((1 - self.label_smoothing) * weights) + spread

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The gradient of each sample's loss at its logits, (n, classes).

        The entries of a sample add up to zero. The label's own is taken from the other classes', so
        that it keeps its digits where the prediction is all but certain.

        Args:
            logits: (n, classes).
            labels: (n,) int64.

        Raises:
            InputError: there are not as many class weights as classes.
        """
        at_label = labels[:, None]
        asked = self.targets(logits.shape[1]).to(logits)[labels]
        mass = asked.sum(1, keepdim=True)
        others = (mass * torch.softmax(logits, 1) - asked).scatter(1, at_label, 0.0)
        return others.scatter(1, at_label, -others.sum(1, keepdim=True))

    def _weights(self, classes: int, like: Tensor | None = None) -> Tensor:
        """The class weights, (classes,), in float64 or as another tensor is."""
        weights = self.class_weights or (1.0,) * classes
        if len(weights) != classes:
            raise InputError(
                f"class_weights of {len(weights)} values: the model has {classes} classes"
            )
        found = torch.tensor(weights, dtype=torch.float64, device="cpu")
        return found if like is None else found.to(like)


@dataclass(frozen=True)
class MeanSquaredError:
    """Squared distance of the outputs from targets of the same shape: regression.

    Example:
        >>> loss, y = MeanSquaredError(), torch.full((2, 3), 2.0)
        >>> loss.total(torch.zeros(2, 3), y), loss.denominator(y)
        (tensor(24.), 6.0)
    """

    name: ClassVar[str] = "mean squared error"

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse targets that are not finite numbers, one for each output."""
        _check_like_outputs(outputs, y)
        if not bool(y.isfinite().all()):
            raise InputError("y: holds values that are not finite")

    def total(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum of all squared differences, from (batch, outputs) and the same."""
        return functional.mse_loss(outputs, y.to(outputs), reduction="sum")

    def denominator(self, y: Tensor) -> float:
        """Batch size times number of outputs."""
        return float(y.numel())


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Binary cross-entropy of sigmoid(outputs) with targets in [0, 1]: multi-label.

    Example:
        >>> loss, y = BinaryCrossEntropy(), torch.tensor([[0.0, 1.0, 1.0]])
        >>> loss.total(torch.zeros(1, 3), y) / loss.denominator(y)
        tensor(0.6931)
    """

    name: ClassVar[str] = "binary cross-entropy"

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse targets that are not numbers from 0 to 1, one for each output."""
        _check_like_outputs(outputs, y)
        if not bool(((y >= 0) & (y <= 1)).all()):
            raise InputError("y: holds values outside [0, 1]: expected one probability per output")

    def total(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum over samples and outputs, from logits (batch, outputs) and the same."""
        return functional.binary_cross_entropy_with_logits(outputs, y.to(outputs), reduction="sum")

    def denominator(self, y: Tensor) -> float:
        """Batch size times number of outputs."""
        return float(y.numel())


def _check_like_outputs(outputs: Tensor, y: Tensor) -> None:
    if outputs.ndim != 2:
        raise InputError(f"model: output shape {tuple(outputs.shape)}: expected (batch, outputs)")
    if y.shape != outputs.shape:
        raise InputError(
            f"y: shape {tuple(y.shape)}: expected {tuple(outputs.shape)}, as the outputs have"
        )
    if not y.is_floating_point():
        raise InputError(f"y: dtype {y.dtype}: expected floating point")
