"""Which certified sample is which true one, and which samples a figure shows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.scoring import Outcome

__all__ = ["evenly", "found_at", "rounds_of"]


def found_at(audit: Audit) -> NDArray[np.int64]:
    """(batch,) where in the recovery each sample of the batch is; -1 for those not recovered.

    Copies of a sample are all at its one place, and so are samples that are too near to be
    distinguished from it.
    """
    # Backwards, so that of repeats the first one stands.
    certified = reversed(list(enumerate(audit.score.matches.tolist())))
    places = {sample: place for place, sample in certified if sample >= 0}
    found = np.array([places.get(first, -1) for first in audit.exposure.copies.tolist()])
    is_recovered = np.array([outcome is Outcome.RECOVERED for outcome in audit.score.outcomes])
    twins = np.flatnonzero(is_recovered & (found < 0))
    if twins.size and places:
        right = sorted(places.values())
        samples = audit.recovery.samples.double().flatten(1)[right]
        apart = torch.cdist(audit.truth.double().flatten(1)[twins], samples)
        found[twins] = np.array(right)[apart.argmin(1).numpy()]
    return found


def rounds_of(audit: Audit) -> NDArray[np.int64]:
    """(batch,) the round in which each sample was recovered; 0 for those that were not."""
    places = found_at(audit)
    rounds = np.zeros_like(places)
    rounds[places >= 0] = audit.recovery.rounds.numpy()[places[places >= 0]]
    return rounds


def evenly(first: int, last: int, most: int) -> list[int]:
    """At most `most` whole numbers from `first` to `last`, both included, evenly spaced.

    Example:
        >>> evenly(1, 19, 4), evenly(0, 2, 8)
        ([1, 7, 13, 19], [0, 1, 2])
    """
    count = min(most, last - first + 1)
    return [round(number) for number in np.linspace(first, last, count).tolist()]
