"""Compare a recovery with the real data. The decoder never imports this module.

The distance of a certified sample from a real one is the root-mean-square difference of their
features, relative to the typical distance between two samples of the batch. Certified samples are

- *right* nearer than `RIGHT` to a true sample,
- *false* farther than `FALSE` from every true sample,
- *inexact* in between: counted separately.

The typical distance is the median over all pairs of distinct samples of the batch. It used to be
the range of the data, which is several times larger: a blend of two similar samples passed for one
of them, and the more easily the more features hardly varied. Features are put on one scale first,
each divided by its range:

- Entries on one common scale have one range, the largest entry of the batch less the smallest: a
  border pixel that never changes is no more precise than the others. That holds for samples with
  more than one dimension (pictures), for entries within [-`SCALED`, `SCALED`], as most data is
  once it has been scaled, and for flat samples that look like pixels: of the features that vary,
  most reach a tenth of the common range, and all of them half a step of 8 bits.
- Otherwise the features are the columns of an unscaled table, and each has its own range over the
  batch: one in 0..10,000 does not hide errors in one in 0..1. A feature that hardly varies in this
  batch has at least `SMALLEST` times the median range, one that does not vary the median itself.

A batch of one sample has no typical distance, and one of near-duplicates a tiny one. So it counts
as at least `SMALLEST_DISTANCE` of the range, where `FALSE` is half a step of 8 bits.

Copies of a sample are one: one certificate recovers all of them. The same holds for samples that
are nearer than `RIGHT` to the certified one and cannot be distinguished from it: a certificate may
count them among its copies, or leave them to certificates of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from gradpeel.decoder.recovery import Recovery
from gradpeel.decoder.unproven import Unproven
from gradpeel.exposure import Exposure
from gradpeel.signals import distinct_marks

__all__ = [
    "ESTIMATE_FACTOR",
    "FALSE",
    "RIGHT",
    "Outcome",
    "Score",
    "explain",
    "score",
]

RIGHT = 0.01
FALSE = 0.05
SCALED = 10.0
SMALLEST = 1e-4
SMALLEST_DISTANCE = 1 / (512 * FALSE)
MOST_COMPARED = 512
AT_ONCE = 128
ESTIMATE_FACTOR = 3.0
ESTIMATE_FLOOR = 1e-6
_TINY = torch.finfo(torch.float64).tiny


class Outcome(StrEnum):
    """What became of one sample of the batch."""

    RECOVERED = "recovered"
    ROUGH = "certified, but too far off to count as recovered"
    FAINT = "gradient too small to stand out from rounding errors or noise"
    COARSE = "rounding errors or noise leave fewer digits than a certificate needs"
    INEXACT = "after roundings and subtractions too inexact to be proven"
    HIDDEN = "within reach only after another sample that was not recovered"
    MISSED = "missed although peeling the activation grid reaches it"
    UNREACHED = "not reached by peeling"


@dataclass(frozen=True, eq=False)
class Score:
    """A recovery compared with the batch it came from.

    Attributes:
        batch_size: number of samples in the batch.
        matches: (n,) index of the real sample that each certified one is (the first of its copies);
            -1 if the certified one is not right.
        inexact: (n,) which certified samples are neither right nor false.
        distances: (n,) root-mean-square error to the nearest real sample, relative to the typical
            distance between two samples.
        errors: (n,) largest absolute error of each certified sample, to the nearest real one.
        labels_right: (n,) whether a matched sample's labels are those of all its copies; labels of
            samples that cannot be distinguished from it are accepted too.
        labels_judged: (n,) which matched samples have a label that can be compared.
        unlabelled: number of matched samples whose label is unknown; 0 if the data has no labels.
        multiplicities_wrong: (n,) whether a matched sample's stated number of copies is wrong: less
            than its copies, or more than the samples that cannot be distinguished from it.
        estimates_hold: (n,) whether the decoder's own estimate of a sample's error holds: the real
            error, in the same unit, is at most `ESTIMATE_FACTOR` times larger, or it is below
            `ESTIMATE_FLOOR`.
        outcomes: for each sample of the batch, what became of it.
        readable: (batch,) which samples are among everything the decoder read, with or without
            proof, nearer than `RIGHT`.
        baseline_rate: share of the batch that some neuron isolates from the start: all that an
            attack without a cascade recovers ("When the Curious Abandon Honesty", Boenisch et al.).
        peeling_bound: share of the batch that peeling the activation grid reaches.
    """

    batch_size: int
    matches: Tensor
    inexact: Tensor
    distances: Tensor
    errors: Tensor
    labels_right: Tensor
    labels_judged: Tensor
    unlabelled: int
    multiplicities_wrong: Tensor
    estimates_hold: Tensor
    outcomes: tuple[Outcome, ...]
    readable: Tensor
    baseline_rate: float
    peeling_bound: float

    @property
    def recovered(self) -> int:
        """Number of samples of the batch recovered; one certificate recovers all copies."""
        return self.outcomes.count(Outcome.RECOVERED)

    @property
    def read(self) -> int:
        """Number of samples that a server could read, with or without proof."""
        return int(self.readable.sum())

    @property
    def recovery_rate(self) -> float:
        """Share of the batch recovered."""
        return self.recovered / self.batch_size

    @property
    def false_certificates(self) -> int:
        """Certified samples that are far from every true sample."""
        return int(((self.matches < 0) & ~self.inexact).sum())

    @property
    def inexact_certificates(self) -> int:
        """Certified samples that are neither right nor false."""
        return int(self.inexact.sum())

    @property
    def repeats(self) -> int:
        """Certified samples that repeat a true sample, or a copy of it, already counted."""
        matched = self.matches[self.matches >= 0].tolist()
        return len(matched) - len(set(matched))

    @property
    def wrong_multiplicities(self) -> int:
        """Matched samples that are stated to stand in the batch more or less often than they do."""
        return int(self.multiplicities_wrong.sum())

    @property
    def label_accuracy(self) -> float | None:
        """Share of right labels among matched samples with a label; None when there are none."""
        return _share(self.labels_right[self.labels_judged])

    @property
    def error_estimates_hold(self) -> float | None:
        """Share of matched samples whose error estimate holds; None when there are none."""
        return _share(self.estimates_hold[self.matches >= 0])

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
    recovery: Recovery,
    x: Tensor,
    y: Tensor | None,
    *,
    exposure: Exposure,
    signals: Tensor,
    needed: float,
) -> Score:
    """Match every certified sample with the nearest true one.

    Args:
        recovery: what the decoder found, in the order it found it.
        x: (batch, *sample_shape) the true samples.
        y: (batch,) the true labels; nothing is said about labels where there are none, be it None
            or the floating-point targets of another loss.
        exposure: the batch's activation grid, peeled; it knows which samples are copies.
        signals: (batch,) how strongly each sample stands out where peeling would read it; NaN
            where that is unknown.
        needed: the signal that a certificate needs in this update.
    """
    true, found = x.double().flatten(1), recovery.samples.double().flatten(1)
    ranges = feature_ranges(true, common=x.ndim > 2)
    # From the smallest entry of each feature, so that a large offset costs no digits.
    low = true.amin(0)
    scaled = (true - low) / ranges
    unit = typical_distance(scaled[exposure.distinct])
    apart = torch.cdist((found - low) / ranges, scaled) / (unit * math.sqrt(true.shape[1]))
    nearest = apart.argmin(1)
    gaps = found - true[nearest]
    # Once more from the gaps themselves: the matrix product above has lost digits.
    distances = _rms(gaps / ranges) / unit
    right = distances < RIGHT
    inexact = ~right & (distances <= FALSE)
    alike = (apart < RIGHT) & right[:, None]
    matches = torch.where(right, _match(exposure.copies, nearest, apart, alike), -1)
    stated = recovery.multiplicities
    copies = exposure.multiplicities[nearest]
    most = torch.maximum(alike.sum(1), copies)
    labels = None if y is None or y.is_floating_point() else y
    labels_right, labels_judged = _labels(recovery, labels, exposure, matches, alike)
    relative = _rms(gaps) / (float(_rms(true).median()) or 1.0)
    recovered = torch.cat([matches[right], exposure.copies[alike.any(0).nonzero()[:, 0]]])
    return Score(
        batch_size=len(true),
        matches=matches,
        inexact=inexact,
        distances=distances,
        errors=gaps.abs().amax(1),
        labels_right=labels_right,
        labels_judged=labels_judged,
        unlabelled=0 if labels is None else int((right & ~labels_judged).sum()),
        multiplicities_wrong=right & (stated > 0) & ((stated < copies) | (stated > most)),
        estimates_hold=relative <= (ESTIMATE_FACTOR * recovery.errors).clamp(min=ESTIMATE_FLOOR),
        outcomes=_outcomes(exposure, recovered, exposure.copies[nearest[inexact]], signals, needed),
        readable=alike.any(0) | _readable(recovery.unproven, scaled, low, ranges, unit),
        baseline_rate=float(exposure.isolated.double().mean()),
        peeling_bound=exposure.peeling_bound,
    )


def feature_ranges(true: Tensor, *, common: bool) -> Tensor:
    """(features,) the range of each feature, by the rule at the head of this module."""
    own = true.amax(0) - true.amin(0)
    whole = float(true.max() - true.min()) or 1.0
    varying = own[own > 0]
    like_pixels = bool((varying >= whole / 512).all()) and bool(varying.median() >= whole / 10)
    # Where nothing varies, one scale cannot be distinguished from several.
    if common or not len(varying) or float(true.abs().max()) <= SCALED or like_pixels:
        return torch.full_like(own, whole)
    typical = varying.median()
    return torch.where(own > 0, own.clamp(min=float(SMALLEST * typical)), typical)


def _readable(
    unproven: Unproven, scaled: Tensor, low: Tensor, ranges: Tensor, unit: float
) -> Tensor:
    """(batch,) which of the true samples stand among the candidates that were not certified."""
    found = torch.zeros(len(scaled), dtype=torch.bool)
    limit = RIGHT * unit * math.sqrt(scaled.shape[1])
    for some in torch.split(torch.arange(len(unproven)), AT_ONCE):
        rows = (unproven.samples(some).flatten(1) - low) / ranges
        found |= (torch.cdist(rows, scaled) < limit).any(0)
    return found


def typical_distance(rows: Tensor) -> float:
    """Median root-mean-square difference of two distinct samples, in units of their ranges."""
    some = rows[:: max(1, math.ceil(len(rows) / MOST_COMPARED))]
    first, second = torch.triu_indices(len(some), len(some), offset=1)
    between = torch.cdist(some, some)[first, second] / math.sqrt(rows.shape[1])
    # The unit of a single sample, and of near-duplicates.
    return max(float(between.median()) if len(between) else 0.0, SMALLEST_DISTANCE)


def _match(copies: Tensor, nearest: Tensor, apart: Tensor, alike: Tensor) -> Tensor:
    """(n,) the first copy of the true sample that each certified one stands for.

    That is the nearest one; where another certificate has taken it, the nearest of those that are
    too close to it to be distinguished, if one of them is left.
    """
    matches = copies[nearest].tolist()
    taken: set[int] = set()
    for place, match in enumerate(matches):
        if match in taken:
            order = apart[place].argsort().tolist()
            close = (int(copies[i]) for i in order if alike[place, i])
            matches[place] = next((first for first in close if first not in taken), match)
        if bool(alike[place].any()):
            taken.add(matches[place])
    return torch.tensor(matches, dtype=torch.long)


def _labels(
    recovery: Recovery, y: Tensor | None, exposure: Exposure, matches: Tensor, alike: Tensor
) -> tuple[Tensor, Tensor]:
    """(n,) whether a matched sample's labels are right, and whether they can be judged."""
    right, judged = torch.zeros(2, len(matches), dtype=torch.bool)
    if y is None:
        return right, judged
    stated = zip(recovery.labels.tolist(), recovery.label_counts, strict=True)
    for place, (match, (label, counts)) in enumerate(zip(matches.tolist(), stated, strict=True)):
        if match < 0 or (label < 0 and not counts):
            continue
        own = exposure.copies == match
        true, close = (Counter(y[samples].tolist()) for samples in (own, own | alike[place]))
        judged[place] = True
        # A label without counts holds for all copies.
        right[place] = true <= Counter(counts) <= close if counts else set(true) == {label}
    return right, judged


def _outcomes(
    exposure: Exposure, recovered: Tensor, rough: Tensor, signals: Tensor, needed: float
) -> tuple[Outcome, ...]:
    """What became of each sample: `recovered` and `rough` are indices of first copies."""
    told = dict.fromkeys(rough.tolist(), Outcome.ROUGH)
    told |= dict.fromkeys(recovered.tolist(), Outcome.RECOVERED)
    why = (_why_missing(strength, needed) for strength in signals.tolist())
    each = zip(exposure.copies.tolist(), exposure.reached.tolist(), why, strict=True)
    return tuple(
        told.get(first, reason if could else Outcome.UNREACHED) for first, could, reason in each
    )


def _why_missing(strength: float, needed: float) -> Outcome:
    """What to say of a sample within reach that did not come back."""
    if needed >= 1.0:
        return Outcome.COARSE
    # An unknown strength, NaN, is not said to be small.
    return Outcome.FAINT if strength < needed else Outcome.MISSED


def explain(
    found: Score, exposure: Exposure, sensitivities: Tensor, errors: Tensor, *, enough: float
) -> Score:
    """Explain why samples were missed although peeling the activation grid reaches them.

    Args:
        found: the score.
        exposure: the batch's activation grid.
        sensitivities: (neurons, batch) |c| of the true samples with their copies, as in the update;
            NaN where unknown.
        errors: (neurons,) the decoder's own estimate of its error at each neuron, at the end.
        enough: how far above its error a residual must stand to carry half the dtype's digits. A
            sample that does is missed for no good reason.

    Returns:
        The score, with INEXACT or HIDDEN instead of MISSED where that applies.
    """
    certified = {Outcome.RECOVERED, Outcome.ROUGH}
    left = exposure.grid & torch.tensor([outcome not in certified for outcome in found.outcomes])
    alone = left & (distinct_marks(left, exposure) == 1)
    clearest = (sensitivities * alone / errors[:, None].clamp(min=_TINY)).amax(0)
    outcomes = list(found.outcomes)
    for i, outcome in enumerate(outcomes):
        if outcome is Outcome.MISSED and not bool(alone[:, i].any()):
            outcomes[i] = Outcome.HIDDEN
        elif outcome is Outcome.MISSED and float(clearest[i]) < enough:
            outcomes[i] = Outcome.INEXACT
    return replace(found, outcomes=tuple(outcomes))


def _rms(rows: Tensor) -> Tensor:
    """Root mean square of each row."""
    size: Tensor = rows.norm(dim=1) / math.sqrt(rows.shape[1])
    return size


def _share(flags: Tensor) -> float | None:
    return float(flags.double().mean()) if len(flags) else None
