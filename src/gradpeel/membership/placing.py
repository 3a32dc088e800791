"""Records beside an update: how far they are from its span, and what trace they would leave.

Example:
    >>> from torch import nn
    >>> from gradpeel import local_update, split
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 99), nn.ReLU(), nn.Linear(99, 2))
    >>> x, target = torch.rand(8, 30), split(model)
    >>> update = local_update(model, x[:7], torch.tensor([0, 1, 0, 1, 0, 1, 0]))
    >>> (UpdateSpan.of(target, update).place(x).distances < 1e-6).tolist()
    [True, True, True, True, True, True, True, False]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.membership.span import Place, RowSpan, find_span
from gradpeel.rounding import rounding_of, row_rounding
from gradpeel.target import Target
from gradpeel.update import Update

__all__ = ["UpdateSpan"]

_CLEAN = 5.0
"""A span that stands out this clearly needs no second look."""

_APART = 1.5
"""Samples and noise that are this far apart can be counted, if their number is known."""

_VISIBLE = 4.0
"""A trace this many times stronger than the strongest noise would have been seen."""

_VISIBLE_ON_THE_WAY = 100.0
"""The same for local training, during which traces become fainter and stronger."""


@dataclass(frozen=True, eq=False)
class UpdateSpan:
    """The span of an update.

    Attributes:
        update: whose it is.
        span: the span of the target's rows, the bias as one more feature that is always 1.
        scale: what that feature was divided by. Where the bias gradient has larger errors than the
            weight gradient, this puts both on the same footing.
        bias_size: norm of the bias gradient.
    """

    update: Update
    span: RowSpan
    scale: float
    bias_size: float

    @classmethod
    def of(cls, target: Target, update: Update) -> UpdateSpan:
        """Find it, with the errors that are expected of such an update or else as measured."""
        weight = update.gradients[target.weight_name].cpu().double()
        bias = update.gradients[target.bias_name].cpu().double()
        absolute, scale, size = None, 1.0, float(bias.norm())
        if update.training is not None:
            absolute = row_rounding(target.weight.cpu(), update.dtype, update.training)
            of_bias = rounding_of(target.bias.cpu(), update.dtype, update.training)
            scale = max(1.0, _ratio(of_bias.norm(), absolute.norm()))
        relative = float(torch.finfo(update.dtype).eps)
        first = find_span(torch.cat([weight, bias[:, None] / scale], 1), relative, absolute)
        if not first.is_full and (first.as_expected or first.gap >= _CLEAN):
            return cls(update, first, scale, size)
        # Noise that somebody added is as large at one neuron as at another.
        spread = weight.std(correction=0)
        even = max(1.0, _ratio(bias.std(correction=0), spread))
        rows = torch.cat([weight, bias[:, None] / even], 1)
        second = find_span(
            rows, 0.0, spread.expand(len(bias)), is_measure=False, may_fill=first.is_full
        )
        found = cls(update, first, scale, size), cls(update, second, even, size)
        return max(found, key=lambda one: one.span.gap)

    def place(self, rows: Tensor) -> Place:
        """Find how far records lie from the span.

        Args:
            rows: (n, features) what enters the target, in the target's dtype.
        """
        constant = torch.full((len(rows), 1), 1 / self.scale, dtype=torch.float64)
        place = self.span.place(torch.cat([rows.cpu().double(), constant], 1))
        # A client that computes in less than the model's dtype rounded its records too.
        coarse, fine = torch.finfo(self.update.dtype).eps, torch.finfo(rows.dtype).eps
        rounding = torch.full_like(place.errors, coarse / 4 if coarse > fine else 0.0)
        return replace(place, errors=torch.hypot(place.errors, rounding))

    def would_show(
        self, rows: Tensor, place: Place, sensitivities: Iterable[Tensor], *, strongest: float
    ) -> Tensor:
        """Tell whose trace would stand above the noise, had they taken part.

        A record adds a direction to the update as far as it lies outside the span, and as far as
        its sensitivities lie outside the space of the others': a record that fires only neurons
        which show nothing but mixtures is not seen for itself. In a span of as many dimensions as
        there are samples, everybody is; where samples and noise run into one another, nobody.

        Args:
            rows: (n, features) the records.
            place: where they are.
            sensitivities: (n, neurons) gradient of each one's loss by the pre-activations, for
                every label that it may have.
            strongest: size of the sensitivities of a sample that is far from being learned.

        Returns:
            (n,) mask.
        """
        span, update = self.span, self.update
        if update.batch_size == span.rank and span.gap >= _APART:
            return torch.ones(len(rows), dtype=torch.bool)
        nobody = torch.zeros(len(rows), dtype=torch.bool)
        if span.gap < _CLEAN or not strongest:
            return nobody
        is_gradient = update.training is None or update.training.is_one_step
        if not is_gradient and (update.batch_size or 0) > span.rank:
            # Nobody knows the way a training took. That samples are missing from its end says more
            # than what would be expected of one of them.
            return nobody
        # The bias gradient is the sum of all sensitivities. Its size tells what one of them weighs
        # at least, whatever the update was multiplied by.
        weight = self.bias_size / (max(update.batch_size or 0, span.rank) * strongest)
        size = torch.hypot(rows.cpu().double().norm(dim=1), torch.tensor(1 / self.scale))
        beyond = torch.stack([self._beyond(weight * c.cpu()) for c in sensitivities]).amin(0)
        least = _VISIBLE if is_gradient else _VISIBLE_ON_THE_WAY
        return beyond * place.distances * size > least * span.edge

    def _beyond(self, sensitivities: Tensor) -> Tensor:
        """(n,) how much of (n, neurons) sensitivities nobody else's could have made up."""
        span = self.span
        noise = torch.where(span.noise > 0, span.noise, torch.inf)
        c = sensitivities / noise
        free = (1 - span.columns.square().sum(1)).clamp(min=0.0)
        beyond = (c - (c @ span.columns) @ span.columns.T).norm(dim=1)
        return torch.minimum(beyond, (c.square() @ free).sqrt())


def _ratio(one: Tensor, other: Tensor) -> float:
    return float(one / other) if float(other) > 0 else 1.0
