"""Compare a recovery with the truth. The decoder never imports this module.

A certified sample is *right* when every entry is within `TOLERANCE` of the data's range of a true
sample's: close enough to round to the very same 8-bit picture. Anything else that was certified is
*false*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from gradpeel.decoder.recovery import Recovery
from gradpeel.decoder.simulation import loss_gradient
from gradpeel.exposure import Exposure
from gradpeel.target import Target

__all__ = ["TOLERANCE", "Outcome", "Score", "explain", "score", "sensitivities", "signals"]

TOLERANCE = 1 / 512


class Outcome(StrEnum):
    """What became of one sample of the batch."""

    RECOVERED = "recovered"
    FAINT = "gradient too small to be certified in this dtype"
    COARSE = "the dtype has fewer digits than a certificate needs"
    INEXACT = "what the cascade leaves of it is too inexact to prove"
    HIDDEN = "within reach only behind another sample that was not recovered"
    MISSED = "missed although peeling the activation grid reaches it"
    UNREACHED = "not reached by peeling"


@dataclass(frozen=True, eq=False)
class Score:
    """A recovery held against the batch it came from.

    Attributes:
        batch_size: number of samples in the batch.
        matches: (n,) index of the true sample each certified one is, -1 for a false certificate.
        errors: (n,) largest absolute error of each certified sample, to the nearest true one.
        labels_right: (n,) whether a matched sample's label is the true one.
        outcomes: for each sample of the batch, what became of it.
        baseline_rate: share of the batch that some neuron isolates from the start: all that an
            attack without a cascade recovers ("When the Curious Abandon Honesty", Boenisch et al.).
        oracle_rate: share that peeling the bare activation grid reaches.
    """

    batch_size: int
    matches: Tensor
    errors: Tensor
    labels_right: Tensor
    outcomes: tuple[Outcome, ...]
    baseline_rate: float
    oracle_rate: float

    @property
    def recovered(self) -> int:
        """Number of distinct true samples recovered."""
        return self.outcomes.count(Outcome.RECOVERED)

    @property
    def recovery_rate(self) -> float:
        """Share of the batch recovered."""
        return self.recovered / self.batch_size

    @property
    def false_certificates(self) -> int:
        """Certified samples that are no true sample."""
        return int((self.matches < 0).sum())

    @property
    def repeats(self) -> int:
        """Certified samples that repeat a true sample already counted."""
        return len(self.matches) - self.false_certificates - self.recovered

    @property
    def label_accuracy(self) -> float | None:
        """Share of right labels among matched samples; None when there are none."""
        matched = self.matches >= 0
        return float(self.labels_right[matched].double().mean()) if bool(matched.any()) else None

    @property
    def max_abs_error(self) -> float | None:
        """Largest absolute error among matched samples; None when there are none."""
        matched = self.errors[self.matches >= 0]
        return float(matched.max()) if len(matched) else None

    @property
    def median_abs_error(self) -> float | None:
        """Median over matched samples of their largest absolute error; None when there are none."""
        matched = self.errors[self.matches >= 0]
        return float(matched.median()) if len(matched) else None


def score(
    recovery: Recovery, x: Tensor, y: Tensor, *, exposure: Exposure, signals: Tensor, needed: float
) -> Score:
    """Match every certified sample with the nearest true one.

    Args:
        recovery: what the decoder found, in the order it found it.
        x: (batch, *sample_shape) the true samples.
        y: (batch,) the true labels.
        exposure: the batch's activation grid, peeled.
        signals: (batch,) how strongly each sample stands out where peeling would read it.
        needed: the signal that a certificate needs in this update.
    """
    true = x.double().flatten(1)
    span = float(true.max() - true.min()) or 1.0
    found = recovery.samples.double().flatten(1)
    # Nearest by Euclidean distance, judged by the largest deviation of any entry.
    nearest = torch.cdist(found, true).argmin(1) if len(found) else recovery.labels
    errors = (found - true[nearest]).abs().amax(1)
    right = errors <= TOLERANCE * span
    recovered = torch.zeros(len(true), dtype=torch.bool)
    recovered[nearest[right]] = True
    why = [_why_missing(strength, needed) for strength in signals.tolist()]
    flags = zip(recovered.tolist(), exposure.reached.tolist(), why, strict=True)
    return Score(
        len(true),
        torch.where(right, nearest, -1),
        errors,
        right & (recovery.labels == y[nearest]),
        tuple(
            Outcome.RECOVERED if was else reason if could else Outcome.UNREACHED
            for was, could, reason in flags
        ),
        float(exposure.isolated.double().mean()),
        exposure.oracle_rate,
    )


def _why_missing(strength: float, needed: float) -> Outcome:
    """What to say of a sample within reach that did not come back."""
    if needed >= 1.0:
        return Outcome.COARSE
    return Outcome.FAINT if strength < needed else Outcome.MISSED


def signals(target: Target, x: Tensor, y: Tensor, exposure: Exposure) -> Tensor:
    """How strongly each sample stands out where peeling would read it.

    A sample is read from a neuron that it shares only with samples peeled before it. Its share of
    what was summed up there, |c_i| / sum |c|, is all that arithmetic leaves of it: below the
    resolution of the update's dtype the sample is not in the update, whatever the grid says. The
    same goes for 1 - p_y of a certain prediction, which the client computes by subtracting from 1.

    Args:
        target: the target, in float64.
        x: (batch, *sample_shape) the true samples.
        y: (batch,) the true labels.
        exposure: the batch's activation grid, peeled.

    Returns:
        (batch,) the largest such share over the neurons that come to isolate the sample, or 1 - p_y
        if that is smaller; 0 for samples that peeling does not reach.
    """
    c, gradient = sensitivities(target, x, y, exposure)
    share = c / c.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    # A neuron comes to isolate the sample that falls last of those that fire it, if it falls alone.
    never = len(y) + 1
    order = torch.where(exposure.reached, exposure.rounds, never) * exposure.grid
    last = order.amax(1, keepdim=True)
    isolates = exposure.grid & (order == last) & (last < never)
    isolates &= isolates.sum(1, keepdim=True) == 1
    strongest: Tensor = (share * isolates).amax(0)
    return torch.minimum(strongest, gradient)


def sensitivities(
    target: Target, x: Tensor, y: Tensor, exposure: Exposure
) -> tuple[Tensor, Tensor]:
    """How much each sample adds at each neuron, |c|, for a loss summed over the batch.

    Args:
        target: the target, in float64.
        x: (batch, *sample_shape) the true samples.
        y: (batch,) the true labels.
        exposure: the batch's activation grid.

    Returns:
        (neurons, batch) sensitivities, and (batch,) the size of the loss gradient at the logits.
    """
    activations = target.pre_activations(target.front(x.double())).relu()
    logits, pull = torch.func.vjp(target.tail, activations)[:2]
    gradient = loss_gradient(logits, y)
    return (pull(gradient)[0].T * exposure.grid).abs(), gradient.abs().amax(1)


def explain(
    found: Score, exposure: Exposure, sensitivities: Tensor, errors: Tensor, *, enough: float
) -> Score:
    """Say more of samples that were missed although the activation grid reaches them.

    Args:
        found: the score.
        exposure: the batch's activation grid.
        sensitivities: (neurons, batch) |c| of the true samples, as in the update.
        errors: (neurons,) the decoder's own estimate of its error at each neuron, at the end.
        enough: how far above its error a residual must stand to carry half the dtype's digits. A
            sample that does is missed for no good reason.

    Returns:
        The score, with INEXACT or HIDDEN in place of MISSED where that is so.
    """
    recovered = torch.tensor([outcome is Outcome.RECOVERED for outcome in found.outcomes])
    left = exposure.grid & ~recovered
    alone = left & (left.sum(1, keepdim=True) == 1)
    tiny = torch.finfo(torch.float64).tiny
    clearest = (sensitivities * alone / errors[:, None].clamp(min=tiny)).amax(0)
    outcomes = list(found.outcomes)
    for i, outcome in enumerate(outcomes):
        if outcome is Outcome.MISSED and not bool(alone[:, i].any()):
            outcomes[i] = Outcome.HIDDEN
        elif outcome is Outcome.MISSED and float(clearest[i]) < enough:
            outcomes[i] = Outcome.INEXACT
    return replace(found, outcomes=tuple(outcomes))
