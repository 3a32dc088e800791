"""Compare what a decoder claims with the truth, in units of the distance between samples.

This module shares no code with `gradpeel.scoring`, so that a mistake in one of them shows. The unit
is the median distance between two distinct samples of the data that the batch was drawn from. The
batch itself gives no unit: a batch of near-duplicates would make every error look large, and a
batch of one sample gives none at all. A claimed sample is

- *right* within `RIGHT` of a true sample,
- *false* beyond `FALSE` of every true sample,
- *inexact* in between.

The mean of two samples that are nearer than `RIGHT` to each other is therefore right: nobody can
tell it from either of them by looking at it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor

from gradpeel.decoder import Recovery

__all__ = ["FALSE", "RIGHT", "Claims", "Truth", "Verdict", "Yardstick", "claims_of", "compare"]

RIGHT = 0.01
FALSE = 0.05

REFERENCE = 200
"""Samples that a unit is measured on."""

MOST_UNITS = 65
"""Up to so many copies of the lightest sample are tried where numbers are relative to it."""

HALF_THE_DIGITS = 1.5e-8
"""Of float64."""

CONSTANT = 1e-6
"""Columns that vary by less than this share of their largest entry count as constant, and samples
that are nearer than this share of the largest distance as one."""


@dataclass(frozen=True, eq=False)
class Yardstick:
    """How distances between samples are measured.

    Attributes:
        weights: (features,) what each feature is multiplied by; 0 for features that are ignored.
        origin: (features,) what is subtracted first, so that a large offset costs no digits.
        typical: the median distance between two distinct samples, in these weights.
    """

    weights: Tensor
    origin: Tensor
    typical: float

    @classmethod
    def of(cls, samples: Tensor, *, columns: bool = False) -> Yardstick:
        """Measure the unit of some data.

        Args:
            samples: (samples, features) of the data, at least two of them distinct.
            columns: whether each feature is a column with a scale of its own; then each is divided
                by its standard deviation, and constant ones are ignored. Pixels share one scale.
        """
        some = samples.double()[:: max(1, len(samples) // REFERENCE)]
        origin = some.mean(0)
        weights = torch.ones_like(origin)
        if columns:
            spread = some.std(0, correction=0)
            varies = spread > CONSTANT * some.abs().amax(0)
            weights = torch.where(varies, 1 / spread.where(varies, 1.0), 0.0)
        rows = (some - origin) * weights
        first, second = torch.triu_indices(len(rows), len(rows), offset=1)
        gaps = torch.cdist(rows, rows)[first, second]
        return cls(weights, origin, float(gaps[gaps > CONSTANT * gaps.amax()].median()))

    def on(self, features: slice) -> Yardstick:
        """The same unit for a part of the features: distances are at most those over all."""
        return replace(self, weights=self.weights[features], origin=self.origin[features])

    def distances(self, found: Tensor, true: Tensor) -> Tensor:
        """Distances (n, batch) between (n, features) and (batch, features), in typical ones."""
        apart = torch.cdist(self._scaled(found), self._scaled(true)) / self.typical
        return torch.nan_to_num(apart, nan=torch.inf)

    def _scaled(self, rows: Tensor) -> Tensor:
        return torch.nan_to_num((rows.double() - self.origin) * self.weights, nan=torch.inf)


@dataclass(frozen=True, eq=False)
class Claims:
    """What a decoder says about a batch.

    Attributes:
        samples: (n, features) the certified samples.
        labels: (n,) their labels, -1 where it says none.
        copies: (n,) how often each stands in the batch, 0 where it does not say.
        relative: these numbers are relative to the lightest sample, which may have copies too.
        label_counts: for each the number of copies by label; empty where it does not say.
        complete: whether it says that these are all.
        batch_size: the batch size it claims to have found, None where it claims none.
    """

    samples: Tensor
    labels: Tensor
    copies: Tensor
    relative: bool
    label_counts: tuple[dict[int, int], ...]
    complete: bool
    batch_size: int | None

    def without(self, left_out: Tensor) -> Claims:
        """The same claims about fewer samples; `left_out` is (n,) bool."""
        kept = (~left_out).nonzero()[:, 0]
        return replace(
            self,
            samples=self.samples[kept],
            labels=self.labels[kept],
            copies=self.copies[kept],
            relative=self.relative,
            label_counts=tuple(self.label_counts[at] for at in kept.tolist()),
        )


def claims_of(recovery: Recovery) -> Claims:
    """Read the claims off a recovery: the only place that knows its fields."""
    return Claims(
        samples=recovery.samples.double().flatten(1),
        labels=recovery.labels,
        copies=recovery.multiplicities,
        relative=not recovery.batch_size.is_confirmed,
        label_counts=recovery.label_counts,
        complete=recovery.complete,
        batch_size=recovery.batch_size.proven,
    )


@dataclass(frozen=True, eq=False)
class Truth:
    """The batch that the update came from.

    Attributes:
        x: (batch, features) as the client computed with it, in its dtype.
        y: (batch,) labels; None where the loss has none.
        silent: (batch,) which samples leave no trace in the target's gradient.
        absent: (batch,) which leave no trace in any gradient.
        pull: (batch,) size of each sample's loss gradient at the logits; None where all count.
        tail_known: whether the decoder could simulate the tail. If it could not, it is not expected
            to know about silent samples, and may count copies as one.
        others: (others, features) samples of other batches that have a part in the update.
    """

    x: Tensor
    y: Tensor | None
    silent: Tensor
    absent: Tensor
    pull: Tensor | None = None
    tail_known: bool = True
    others: Tensor | None = None

    @property
    def unnoticed(self) -> Tensor:
        """(batch,) the samples that the decoder is not expected to know about."""
        return self.absent if self.tail_known else self.absent | self.silent


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How many claims hold.

    Attributes:
        certified: samples certified.
        right: of these, within `RIGHT` of a true sample.
        inexact: of these, neither right nor false.
        false: of these, beyond `FALSE` of every true sample.
        wrong_labels: certified samples that are not false and have a label that no true sample in
            reach has, or more often than these have it.
        wrong_copies: those with more copies than there are samples in reach, or fewer than there
            are exact copies.
        repeats: claimed copies for which no true sample is left.
        beyond: samples claimed in excess of the batch size.
        wrong_complete: 1 if the claim to be complete is wrong.
        wrong_size: 1 if a batch size is claimed that the batch does not have.
        recovered: true samples within `RIGHT` of a certified one.
        worst: largest distance of a certified sample from the true ones; 0 where there is none.
    """

    certified: int = 0
    right: int = 0
    inexact: int = 0
    false: int = 0
    wrong_labels: int = 0
    wrong_copies: int = 0
    repeats: int = 0
    beyond: int = 0
    wrong_complete: int = 0
    wrong_size: int = 0
    recovered: int = 0
    worst: float = 0.0


def compare(claims: Claims, truth: Truth, yardstick: Yardstick) -> Verdict:
    """Hold the claims against the truth.

    Samples that have come in from other batches are true, and nothing more is asked about them.
    """
    covered = yardstick.distances(claims.samples, truth.x) <= FALSE
    if truth.others is not None:
        foreign = (yardstick.distances(claims.samples, truth.others) <= FALSE).any(1)
        claims = claims.without(foreign)
    count, batch = len(claims.samples), len(truth.x)
    apart = yardstick.distances(claims.samples, truth.x)
    nearest = apart.amin(1) if count else torch.zeros(0)
    false = ~(nearest <= FALSE)
    right = nearest <= RIGHT
    in_reach = apart <= FALSE
    exact = _exact_copies(truth)
    first = apart.argmin(1) if count else torch.zeros(0, dtype=torch.long)
    reachable = in_reach.sum(1)
    tries = [claims.copies * unit for unit in range(1, MOST_UNITS if claims.relative else 2)]
    faults = [~false & (n > 0) & ((n > reachable) | (n < exact[first])) for n in tries]
    wrong_copies = min(faults, key=lambda wrong: int(wrong.sum()))
    stated = torch.where(claims.copies > 0, claims.copies, exact[first])
    return Verdict(
        certified=count,
        right=int(right.sum()),
        inexact=int((~right & ~false).sum()),
        false=int(false.sum()),
        wrong_labels=_wrong_labels(claims, truth, in_reach & ~false[:, None]),
        wrong_copies=int(wrong_copies.sum()),
        repeats=_repeats(in_reach, stated.clamp(max=reachable)),
        beyond=max(0, int(claims.copies.clamp(min=1).sum()) - batch),
        wrong_complete=int(claims.complete and not _covers(covered, truth)),
        wrong_size=int(not _fits(claims.batch_size, truth)),
        recovered=int((apart <= RIGHT).any(0).sum()) if count else 0,
        worst=float(nearest.amax()) if count else 0.0,
    )


def _exact_copies(truth: Truth) -> Tensor:
    """(batch,) how often each sample stands in the batch, to the last bit.

    A copy counts if it pulls at the update by more than half the digits of the one that pulls most:
    labelled as the network predicts with certainty it leaves no trace, and cannot be counted.
    """
    _, places, counts = torch.unique(truth.x + 0.0, dim=0, return_inverse=True, return_counts=True)
    if truth.pull is None:
        found: Tensor = counts[places]
        return found
    most = truth.pull.new_zeros(len(counts)).scatter_reduce(0, places, truth.pull, "amax")
    seen = (truth.pull > HALF_THE_DIGITS * most[places]).long()
    return torch.zeros_like(counts).index_add(0, places, seen)[places].clamp(min=1)


def _covers(in_reach: Tensor, truth: Truth) -> bool:
    """Whether every true sample that the decoder can know of is near a certified one."""
    return bool((in_reach.any(0) | truth.unnoticed).all())


def _fits(size: int | None, truth: Truth) -> bool:
    """Whether a claimed batch size is one that the batch has."""
    visible = truth.x[~truth.unnoticed]
    if size is None or size in {len(truth.x), len(visible)}:
        return True
    return not truth.tail_known and size == len(torch.unique(visible, dim=0))


def _repeats(in_reach: Tensor, copies: Tensor) -> int:
    """Claimed copies that cannot all be given a true sample of their own."""
    slots = np.repeat(in_reach.numpy(), copies.numpy(), axis=0)
    if not len(slots):
        return 0
    matched = maximum_bipartite_matching(csr_matrix(slots), perm_type="column")
    return int((matched < 0).sum())


def _wrong_labels(claims: Claims, truth: Truth, in_reach: Tensor) -> int:
    if truth.y is None:
        return 0
    wrong = 0
    for label, copies, counts, near in zip(
        claims.labels.tolist(), claims.copies.tolist(), claims.label_counts, in_reach, strict=True
    ):
        there = Counter(truth.y[near].tolist())
        said = Counter(counts) if counts else Counter([label] if label >= 0 else [])
        # Where the number of copies is wrong, which is counted by itself, the kinds are compared.
        fits = said <= there if copies <= there.total() else set(said) <= set(there)
        wrong += bool(there) and not fits
    return wrong
