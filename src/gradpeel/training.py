r"""What is known of a client's local training, and the gradients behind a difference of weights.

A client of FedAvg trains on its own data for some steps and returns weights, not a gradient. With
plain SGD every step is linear in its gradient,

    v <- momentum v + gradient + weight_decay w,        w <- w - lr v,

so the weights it returns are  kept w_before - lr \sum_t k_t gradient_t:  a share of the weights it
received, less a weighted sum of its gradients. Taking that share away and dividing by lr leaves the
sum: the gradient itself after a single step.

Example:
    >>> import torch
    >>> training = LocalTraining(lr=0.1, steps=1, weight_decay=0.5)
    >>> before, gradient = torch.tensor([2.0, -1.0]), torch.tensor([0.25, 4.0])
    >>> after = before - 0.1 * (gradient + 0.5 * before)
    >>> summed_gradients({"w": before}, {"w": after}, training)
    {'w': tensor([0.2500, 4.0000])}
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields

import numpy as np
from torch import Tensor

from gradpeel.checks import check_at_least_0, check_positive_integer, is_number
from gradpeel.errors import InputError

__all__ = ["LocalTraining", "summed_gradients", "weights_after"]


@dataclass(frozen=True)
class LocalTraining:
    """How the weights behind an update were trained, as far as it is known: plain SGD.

    An `Update` that carries one is a difference of weights, turned into a sum of gradients by
    `summed_gradients`; an update without one is the gradient of one batch (FedSGD).

    Attributes:
        lr: the learning rate; None if unknown, and the update is then the difference itself.
        steps: number of local steps; None if unknown.
        momentum: SGD's momentum, from 0 to below 1.
        weight_decay: SGD's weight decay, at least 0.

    Raises:
        InputError: a setting breaks its rule.
    """

    lr: float | None
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.lr is not None and not (is_number(self.lr) and self.lr > 0):
            raise InputError(f"lr={self.lr!r}: expected a number above 0")
        if self.steps is not None:
            check_positive_integer("steps", self.steps)
        if not (is_number(self.momentum) and 0 <= self.momentum < 1):
            raise InputError(f"momentum={self.momentum!r}: expected a number from 0 to below 1")
        check_at_least_0("weight_decay", self.weight_decay)

    def as_json(self) -> str:
        """The settings as one line of JSON, as the metadata of an update's file holds them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LocalTraining:
        """Read what `as_json` wrote.

        Raises:
            InputError: not a JSON object, unknown settings, or one that breaks its rule.
        """
        rule = "training: expected a JSON object with lr, steps, momentum and weight_decay"
        try:
            settings = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(rule) from None
        names = {field.name for field in fields(cls)}
        if not isinstance(settings, dict) or "lr" not in settings or not settings.keys() <= names:
            raise InputError(rule)
        return cls(**settings)

    @property
    def is_one_step(self) -> bool:
        """Whether the update is known to be the gradient of a single batch."""
        return self.steps == 1

    @property
    def kept(self) -> float | None:
        """The factor of the first weights in the last ones: 1 without weight decay.

        None if it cannot be known, because the learning rate or the number of steps is not.

        Example:
            >>> LocalTraining(lr=0.5, steps=2, weight_decay=0.1).kept
            0.9025
        """
        if self.weight_decay == 0:
            return 1.0
        if self.lr is None or self.steps is None:
            return None
        # (velocity, weight) after one step of weight decay alone, as a matrix; its power takes a
        # logarithm of the steps.
        pull, push = self.weight_decay, self.momentum
        step = np.array([[push, pull], [-self.lr * push, 1 - self.lr * pull]])
        return float(np.linalg.matrix_power(step, self.steps)[1, 1])


def summed_gradients(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    training: LocalTraining,
    *,
    kept: float | None = None,
) -> dict[str, Tensor]:
    """The weighted sum of all gradients of a local training, by parameter name.

    Computed in float64 and rounded once, so what is left of rounding errors is that of the
    weights themselves: about an ulp of the weight, divided by the learning rate.

    Args:
        before: the weights the client received.
        after: the weights it returned, with the same names, shapes and dtypes.
        training: how it trained. Weight decay is undone where the learning rate and the number of
            steps are known; otherwise a part along the weights stays.
        kept: the factor of the first weights in the last ones, where it is known otherwise than by
            these settings.

    Returns:
        (kept * before - after) / lr for each parameter, in the dtype of the weights.
    """
    if kept is None:
        kept = 1.0 if training.kept is None else training.kept
    lr = 1.0 if training.lr is None else training.lr
    return {
        name: ((kept * old.detach().double() - after[name].detach().double()) / lr).to(old.dtype)
        for name, old in before.items()
    }


def weights_after(
    before: Mapping[str, Tensor],
    summed: Mapping[str, Tensor],
    training: LocalTraining,
    *,
    after: Mapping[str, Tensor] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Tensor]:
    """The weights that a local training ended with: the inverse of `summed_gradients`.

    Args:
        before: the weights the client received.
        summed: the weighted sum of its gradients, by parameter name.
        training: how it trained.
        after: weights to be taken as they are where nothing is to be changed, buffers among them;
            by default those before.
        only: the names of the weights to compute; by default all that `summed` has.

    Returns:
        All of `after`, with kept * before - lr * summed in the place of the weights that are
        computed, in the dtypes of `before`.

    Raises:
        InputError: weights that have to be computed are missing.

    Example:
        >>> import torch
        >>> training, before = LocalTraining(lr=0.5), {"w": torch.ones(2)}
        >>> weights_after(before, {"w": torch.tensor([0.0, 4.0])}, training)
        {'w': tensor([ 1., -1.])}
    """
    names = set(summed if only is None else only)
    missing = sorted(names - before.keys())
    if missing:
        raise InputError(f"before: no weights {missing[0]!r}: expected those of every gradient")
    kept = 1.0 if training.kept is None else training.kept
    lr = 1.0 if training.lr is None else training.lr
    computed = {
        name: (kept * before[name].double() - lr * summed[name].double()).to(before[name].dtype)
        for name in names
    }
    return {**(before if after is None else after), **computed}
