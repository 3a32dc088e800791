"""When may a record be called "in"? If records that were not in are hardly ever that close.

How close they are is learned from records that were not in, if some are given; otherwise from those
of the records in question that lie outside the span; otherwise, for as many dimensions as samples,
from the record's own weakest part. None of these sees that a record is the sum or difference of
others, so records that depend on one another, and records of few values, need another witness.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.exposure import copies_of
from gradpeel.membership.null import LEAST, Null
from gradpeel.membership.span import Place, RowSpan
from gradpeel.update import Update

__all__ = ["IN_ERRORS", "Calibration", "calibrate"]

IN_ERRORS = 5.0
"""A record that took part lies within so many errors of the span."""

_ENOUGH = 20
"""So many records outside the span show what the distance of one is."""

_WEAKEST = 4
"""The weakest part of a span is one of so many."""

_FEW_VALUES = 16
"""Records of no more different values than these, such as one-hot rows, count as discrete."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """How likely a record that was not in would be called "in".

    Attributes:
        chances: (n,) by what is demanded of each record.
        doubts: for each record a reason why its chance does not count, or None.
        false_positives: how many of the given non-members would be called "in".
    """

    chances: Tensor
    doubts: tuple[str | None, ...]
    false_positives: int = 0

    def certain(self, limit: float) -> Tensor:
        """(n,) the records that may be called "in" at this false-positive rate."""
        return torch.tensor([doubt is None for doubt in self.doubts]) & (self.chances <= limit)


def calibrate(
    span: RowSpan,
    place: Place,
    rows: Tensor,
    update: Update,
    *,
    outside: Place | None,
    limit: float,
) -> Calibration:
    """Find how likely records that were not in would be called "in".

    Args:
        span: the span of the update.
        place: where the records are.
        rows: (n, features) the records.
        update: the update.
        outside: where records are that certainly were not in, if some were given.
        limit: the largest false-positive rate that is allowed.
    """
    count, demanded = len(rows), IN_ERRORS * place.errors

    def nobody(why: str | None, false_positives: int = 0) -> Calibration:
        return Calibration(torch.ones_like(demanded), (why,) * count, false_positives)

    if span.is_full or not span.rank:
        return nobody(
            None if span.is_full else "no sample stands out from the noise of this update"
        )
    if outside is not None:
        null = Null.of(outside.distances)
        allowed = IN_ERRORS * outside.errors
        fits = (outside.distances <= allowed) & (_chances(null, allowed) <= limit)
        false, total = int(fits.sum()), len(fits)
        if false > limit * total:
            return nobody(f"{false} of {total} records that were not in fit as well", false)
        return Calibration(_chances(null, demanded), (None,) * count, false)
    if len(torch.unique(rows)) <= _FEW_VALUES:
        return nobody("records of so few values may be sums of others: give some that were not in")
    near = place.distances <= demanded
    apart = place.distances[~near]
    if len(apart) >= _ENOUGH:
        chances = _chances(Null.of(apart), demanded)
    elif update.batch_size == span.rank:
        # Outside the span a record would have no less than in the weakest part of it.
        weakest = place.along[:, -max(1, span.rank // _WEAKEST) :].square().mean(1).sqrt()
        chances = demanded / weakest.clamp(min=torch.finfo(weakest.dtype).tiny)
        chances = chances.clamp(min=LEAST, max=1.0)
    else:
        return nobody("nothing shows how far others lie: give records that were not in")
    why = "it is a combination of other records that fit, and some of them may not have been in"
    dependent = _dependent(place, near, copies_of(rows))
    return Calibration(chances, tuple(why if each else None for each in dependent.tolist()))


def _dependent(place: Place, near: Tensor, copies: Tensor) -> Tensor:
    """(n,) the records of the span that are combinations of others of them; copies are one."""
    found = torch.zeros_like(near)
    firsts: Tensor = torch.unique(copies[near])
    if len(firsts) < 2:
        return found
    left, values, _ = torch.linalg.svd(place.along[firsts])
    tiny = torch.finfo(values.dtype).eps * len(firsts)
    missing = values.new_zeros(max(0, len(firsts) - len(values)))
    values = torch.cat([values, missing]).clamp(min=tiny)
    # The distance of each from the span of all others.
    apart = 1 / (left / values).norm(dim=1)
    found[firsts] = apart <= IN_ERRORS * place.errors[firsts]
    return found[copies] & near


def _chances(null: Null, distances: Tensor) -> Tensor:
    found = [null.chance(distance) for distance in distances.tolist()]
    return torch.tensor(found, dtype=torch.float64)
