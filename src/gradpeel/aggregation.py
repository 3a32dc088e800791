"""Secure aggregation: the server sees the sum of several clients' updates, and no single one.

The sum is an update of the joined batch. FedAvg weights every client by the number of its samples,
so after one gradient each the sum is the gradient of one batch that holds them all, and everything
that holds for one client's batch holds for it. After local training it still is a sum over samples,
each silent at the neurons that it never fired on its own client's path.

The sum does not reveal which client a sample came from.

Example:
    >>> import torch
    >>> from torch import nn
    >>> from gradpeel.client import local_update
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.rand(9, 4), torch.arange(9) % 3
    >>> aggregate([local_update(model, x[:6], y[:6]), local_update(model, x[6:], y[6:])])
    Update(4 tensors, 67 numbers, float32, batch_size=9, reduction='mean', clients=2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from gradpeel.checks import check_positive_integer
from gradpeel.errors import InputError
from gradpeel.training import LocalTraining
from gradpeel.update import Update

__all__ = ["Aggregation", "Weighting", "aggregate", "client_weights"]

Weighting = Literal["samples", "equal"]
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)


@dataclass(frozen=True)
class Aggregation:
    """How many clients' updates are added up before the server sees them.

    Attributes:
        clients: number of clients; 1 for none but the one that is audited. They share the samples
            in their order, as evenly as possible.
        sizes: number of samples of each client, instead of even shares.
        weighting: "samples" weights a client by the number of its samples, as FedAvg does; with
            "equal" all clients count the same.

    Raises:
        InputError: a setting breaks its rule.

    Example:
        >>> Aggregation(3).split(8)
        (3, 3, 2)
        >>> Aggregation(sizes=(5, 3)).clients
        2
        >>> Aggregation(3).split(2)
        Traceback (most recent call last):
        gradpeel.errors.InputError: clients=3: expected at most as many as the 2 samples
    """

    clients: int = 1
    sizes: tuple[int, ...] | None = None
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        check_positive_integer("clients", self.clients)
        if self.weighting not in WEIGHTINGS:
            raise InputError(f"weighting={self.weighting!r}: expected one of {WEIGHTINGS}")
        if self.sizes is None:
            return
        sizes: object = self.sizes
        if isinstance(sizes, str) or not isinstance(sizes, Sequence) or not sizes:
            raise InputError(f"sizes={sizes!r}: expected the number of samples of each client")
        for size in self.sizes:
            check_positive_integer("sizes", size)
        if self.clients not in (1, len(self.sizes)):
            raise InputError(
                f"clients={self.clients}: expected {len(self.sizes)}, one for each of the sizes"
            )
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "clients", len(self.sizes))

    def split(self, samples: int) -> tuple[int, ...]:
        """The number of samples of each client, out of all of them.

        Raises:
            InputError: there are fewer samples than clients, or the sizes do not add up to them.
        """
        if self.sizes is not None:
            if sum(self.sizes) != samples:
                raise InputError(
                    f"sizes={self.sizes}: they add up to {sum(self.sizes)}: expected {samples}, "
                    "the number of samples"
                )
            return self.sizes
        if self.clients > samples:
            rule = f"expected at most as many as the {samples} samples"
            raise InputError(f"clients={self.clients}: {rule}")
        least, more = divmod(samples, self.clients)
        return (least + 1,) * more + (least,) * (self.clients - more)


def aggregate(updates: Sequence[Update], weighting: Weighting = "samples") -> Update:
    """Add up the updates of several clients, as a server with secure aggregation receives them.

    The sum is scaled so that a sample keeps the weight that the update states: a mean over all
    samples for clients that send means, their sum for clients that send sums.

    Args:
        updates: one for each client, computed on the same model.
        weighting: "samples" weights each by its number of samples, as FedAvg does; with "equal" all
            clients count the same.

    Returns:
        Their sum, with the number of clients and of all samples, where those of all clients are
        known. It states if samples of different clients have different weights in it.

    Raises:
        InputError: there are none, they do not belong to one model or one kind of round, or one
            that is weighted by its samples does not state how many it has.
    """
    updates = list(updates)
    _check(updates, weighting)
    sizes = [update.batch_size for update in updates]
    weights = client_weights(updates, weighting)
    # What a sample of each client weighs, up to a common factor.
    own = [
        weight / (size or 1) if update.reduction == "mean" else weight
        for update, size, weight in zip(updates, sizes, weights, strict=True)
    ]
    is_known = None not in sizes
    total = sum(size for size in sizes if size is not None) if is_known else None
    first = updates[0]
    return Update(
        {name: _sum(name, updates, weights) for name in first.gradients},
        total,
        first.reduction,
        _common([update.training for update in updates]),
        clients=sum(update.clients for update in updates),
        equal_weights=all(update.equal_weights for update in updates)
        and (is_known or first.reduction == "sum")
        and max(own) - min(own) <= 1e-9 * max(own),
    )


def client_weights(updates: Sequence[Update], weighting: Weighting) -> list[float]:
    """The factor of each client's update in the sum of `aggregate`."""
    counts = [1.0 if weighting == "equal" else float(update.batch_size or 1) for update in updates]
    # So that a mean stays a mean, and a sum a sum.
    total = 1.0 if updates[0].reduction == "mean" else float(len(updates))
    return [total * count / sum(counts) for count in counts]


def _sum(name: str, updates: Sequence[Update], weights: Sequence[float]) -> Tensor:
    """The weighted sum of a gradient, rounded once."""
    first = updates[0].gradients[name]
    total = torch.zeros_like(first, dtype=torch.float64)
    for update, weight in zip(updates, weights, strict=True):
        total.add_(update.gradients[name].double(), alpha=weight)
    return total.to(first.dtype)


def _common(trainings: Sequence[LocalTraining | None]) -> LocalTraining | None:
    """What holds for the training of all clients, whatever number of steps each has taken."""
    first = trainings[0]
    if first is None or all(training == first for training in trainings):
        return first
    return replace(first, steps=None)


def _check(updates: list[Update], weighting: str) -> None:
    if weighting not in WEIGHTINGS:
        raise InputError(f"weighting={weighting!r}: expected one of {WEIGHTINGS}")
    if not updates:
        raise InputError("updates: expected at least one")
    given: list[object] = [*updates]
    for place, one in enumerate(given):
        if not isinstance(one, Update):
            kind = type(one).__name__
            raise InputError(f"updates[{place}] of type {kind}: expected gradpeel.Update")
        _check_alike(f"updates[{place}]", one, updates[0])
    for place, update in enumerate(updates):
        if weighting == "samples" and update.batch_size is None and len(updates) > 1:
            raise InputError(
                f"updates[{place}]: batch_size=None: expected the number of its samples, by which "
                "it is weighted"
            )


def _check_alike(where: str, update: Update, first: Update) -> None:
    """Refuse an update that cannot be added to the first."""
    shapes, others = (
        {name: tuple(gradient.shape) for name, gradient in one.gradients.items()}
        for one in (update, first)
    )
    if shapes != others:
        wrong = next(name for name in {**others, **shapes} if shapes.get(name) != others.get(name))
        raise InputError(
            f"{where}: {wrong} of shape {shapes.get(wrong)}: expected {others.get(wrong)} as in "
            "the first"
        )
    for name in ("dtype", "reduction"):
        if getattr(update, name) != getattr(first, name):
            got, rule = getattr(update, name), getattr(first, name)
            raise InputError(f"{where}: {name}={got}: expected {rule} as in the first")
    own, other = update.training, first.training
    alike = own == other
    if own is not None and other is not None:
        alike = replace(own, steps=None) == replace(other, steps=None)
    if not alike:
        raise InputError(f"{where}: training={own}: expected {other}, but for its steps")
