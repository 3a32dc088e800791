"""The span of an update: the space in which every sample that took part must lie.

The target's gradient, with the bias gradient as one more column, is A = C^T (X, 1): every row of it
is a combination of the samples, each with a 1 appended. So it is after any number of steps of SGD,
and so it stays however the update is scaled. While the samples are fewer than the neurons and than
the features, the row space of A is therefore the span of the samples, and no larger.

What is sent is A + E, with roundings or noise E. How large E is need not be known: beyond the
samples there is nothing but E, so the smallest singular values measure it. To first order a sample
x = A^T a is then seen at the distance |E^T a| from the space, and a follows from x: samples that
need weak directions of the space are known less exactly. That is the error beside each distance.

Example:
    >>> source = torch.Generator().manual_seed(0)
    >>> samples = torch.rand(5, 30, generator=source, dtype=torch.float64)
    >>> span = find_span(torch.randn(40, 5, generator=source, dtype=torch.float64) @ samples)
    >>> span.rank, span.is_full
    (5, False)
    >>> place = span.place(torch.cat([samples[:1], torch.ones(1, 30)]))
    >>> [f"{float(distance):.0e}" for distance in place.distances]
    ['...e-16', '2e-01']
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Place", "RowSpan", "find_span"]

_ABOVE_PRIOR = 4.0
"""So many times the expected largest singular value of the roundings may be roundings."""

_ABOVE_BULK = 4.0
"""So many times as large as its median says may noise be: it is not the same at all entries."""

_FEWEST = 8
"""Fewer singular values than these do not look like anything."""

_CLIFF = 5.0
"""Two neighbouring singular values this far apart are not both noise."""

_ZONE = 30.0
"""Singular values up to this multiple of the noise may be noise, if a cliff comes before them."""

_PASSES = 4
_UNEVEN = 3.0
"""Neurons are weighted again if their noise is this much more uneven than was assumed."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where records stand with respect to a span.

    Attributes:
        distances: (n,) distance of each record from the span, relative to its own norm.
        errors: (n,) the distance that the update's errors would put it at if it were in the span;
            1 where nothing can be concluded.
        along: (n, rank) the records along the directions of the span, relative to their norms.
    """

    distances: Tensor
    errors: Tensor
    along: Tensor


@dataclass(frozen=True, eq=False)
class RowSpan:
    """The row space of an update's target, found from the update itself.

    Attributes:
        basis: (rank, width) orthonormal rows that span it.
        strengths: (rank,) how strongly the update shows each of them, in units of its noise.
        columns: (neurons, rank) orthonormal columns: the same space over neurons, each neuron in
            units of its noise; zero for neurons without a gradient.
        noise: (neurons,) standard deviation of the noise on an entry of each neuron.
        left_over: norm of the noise outside the span that a unit combination of neurons has.
        edge: the strongest direction of the noise, in units of `strengths`.
        as_expected: whether the noise is no larger than roundings are expected to be.
        is_full: whether the samples fill all there is, so that every record lies in the span.
    """

    basis: Tensor
    strengths: Tensor
    columns: Tensor
    noise: Tensor
    left_over: float
    edge: float
    as_expected: bool
    is_full: bool

    @property
    def rank(self) -> int:
        """Dimension of the span: the number of independent samples that can be seen."""
        return len(self.strengths)

    @property
    def gap(self) -> float:
        """How many times the weakest direction stands above the strongest noise; 1 if full."""
        if self.is_full or not self.rank:
            return 1.0
        return float(self.strengths[-1]) / max(self.edge, torch.finfo(torch.float64).tiny)

    def place(self, records: Tensor) -> Place:
        """Find how far records lie from the span, and how far they might if they were in it.

        Args:
            records: (n, width) float64.
        """
        size = records.norm(dim=1).clamp(min=torch.finfo(records.dtype).tiny)
        along = records @ self.basis.T
        outside = records - along @ self.basis
        # Once more: what is left may be smaller than the roundings of what was taken away.
        outside = outside - (outside @ self.basis.T) @ self.basis
        weights = (along / self.strengths).norm(dim=1) * self.left_over
        computed = 4 * torch.finfo(records.dtype).eps * math.sqrt(max(self.rank, 1))
        errors = torch.hypot(weights / size, torch.full_like(size, computed))
        if self.is_full or not self.rank:
            errors = torch.ones_like(size)
        return Place(outside.norm(dim=1) / size, errors, along / size[:, None])


def find_span(
    rows: Tensor,
    relative: float = 0.0,
    absolute: Tensor | None = None,
    *,
    is_measure: bool = True,
    may_fill: bool = False,
) -> RowSpan:
    """Find the row space of a matrix that carries noise of unknown size.

    Args:
        rows: (neurons, width) the gradient, the bias as its last column; float64.
        relative: expected roundings of an entry, relative to the typical entry of its row.
        absolute: (neurons,) expected errors of an entry that do not depend on its size.
        is_measure: whether these two say how large errors are, and not only at which neurons they
            are larger than at others.
        may_fill: whether samples may fill all there is: then what does not look like noise is
            none. Where roundings say how large noise is, that follows from them.

    Returns:
        The span.
    """
    relative = max(relative, float(torch.finfo(rows.dtype).eps))
    live = (rows != 0).any(1)
    there, used = rows[live], int((rows != 0).any(0).sum())
    size = there.norm(dim=1) / math.sqrt(max(used, 1))
    expected = (relative * size).square()
    if absolute is not None:
        expected = expected + absolute[live].square()
    if not len(there):
        return _empty(rows)
    # What the features are made of does not change from one look to the next. Each neuron keeps its
    # own accuracy in this, however faint it is beside the others.
    turn = None
    if there.shape[1] > len(there):
        turn, triangle = torch.linalg.qr(there.T)
        there = triangle.T
    variance, as_expected = expected, False
    for _ in range(_PASSES):
        left, values, right = torch.linalg.svd(
            there / variance.sqrt()[:, None], full_matrices=False
        )
        first = variance is expected
        rank, is_full = _rank(
            values, len(there), used, prior=is_measure and first, may_fill=may_fill
        )
        if is_full:
            break
        if is_measure and first:
            as_expected = float(values[rank:].median()) <= _floor(len(there), used)
        kept = left[:, :rank] * values[:rank]
        rest = there / variance.sqrt()[:, None] - kept @ right[:rank]
        measured = _measured(rest, left[:, :rank], variance, size, used - rank)
        if measured is None or _unevenness(measured / variance) <= _UNEVEN:
            break
        variance = measured
    left_over = 0.0 if is_full else float(rest.norm()) ** 2 / (len(there) - rank)
    if is_measure:  # where little is left over, what is expected counts
        least = float((expected / variance).median()) * max(used - rank, 1) / _ABOVE_PRIOR**2
        left_over = max(left_over, least)
    edge = float(values[rank]) if rank < len(values) else 0.0
    # A faint sample may hide among the noise. The others' combinations share in it, so their error
    # is no less than what the strongest direction of the noise does to one of them.
    left_over = max(left_over, edge**2 / 4)
    columns = rows.new_zeros(len(rows), rank)
    columns[live] = left[:, :rank]
    noise = rows.new_zeros(len(rows))
    noise[live] = variance.sqrt()
    return RowSpan(
        basis=right[:rank] if turn is None else right[:rank] @ turn.T,
        strengths=values[:rank],
        columns=columns,
        noise=noise,
        left_over=math.sqrt(left_over),
        edge=edge,
        as_expected=as_expected,
        is_full=is_full,
    )


def _empty(rows: Tensor) -> RowSpan:
    width = rows.shape[1]
    return RowSpan(
        basis=rows.new_zeros(0, width),
        strengths=rows.new_zeros(0),
        columns=rows.new_zeros(len(rows), 0),
        noise=rows.new_zeros(len(rows)),
        left_over=0.0,
        edge=0.0,
        as_expected=True,
        is_full=False,
    )


def _rank(
    values: Tensor, count: int, width: int, *, prior: bool, may_fill: bool
) -> tuple[int, bool]:
    """How many singular values are more than noise, and whether all there can be are.

    Args:
        values: singular values, the largest first, of rows in units of their noise.
        count: number of rows.
        width: number of columns that are not zero.
        prior: whether these units are those of roundings, so that 1 is what is expected.
        may_fill: whether samples may fill all there is, so that none of the values is noise.
    """
    most = min(count, width)
    values = values[:most]
    computed = torch.finfo(values.dtype).eps * float(values[0]) * math.sqrt(max(count, width))
    floor = computed
    if prior:
        floor = max(floor, _floor(count, width))
    # Directions in which there is nothing, not even noise, as features that depend on others leave
    # them; where noise is as faint as what is computed here, they count as noise.
    alive = int((values > computed).sum()) if floor > 10 * computed else most
    rank = int((values > floor).sum())
    if prior and rank < alive and _stands_clear(values, rank, floor):
        return rank, False
    at = torch.arange(max(0, alive - _FEWEST))
    # The singular values of noise lie close together (Marchenko and Pastur): the largest is a known
    # multiple of the median. Those of real data have long tails.
    more, less = (count - at).double(), (width - at).double()
    more, less = torch.maximum(more, less), torch.minimum(more, less)
    bulk = values.clamp(min=floor / _ABOVE_PRIOR)[at + (alive - at) // 2] * (
        1 + (less / more).sqrt()
    )
    bulk = bulk / (1 - 0.35 * less / more).sqrt()
    stands_out = (values[: len(at)] > floor) & (values[: len(at)] > _ABOVE_BULK * bulk)
    rank = int(stands_out.nonzero().max()) + 1 if bool(stands_out.any()) else 0
    may_fill |= prior and alive == most and float(values[-1]) > _CLIFF * floor
    if may_fill and not _looks_like_noise(values[rank:alive], count):
        return most, True
    if rank == len(at):  # too little is left to tell noise by its looks
        rank = int((values > floor).sum())
        if rank == most:
            return most, True
    low = int((values > _ZONE * max(float(values[rank]), floor / _ZONE)).sum())
    if 0 < low < rank:
        steps = values[low - 1 : rank] / values[low : rank + 1]
        if float(steps.max()) > _CLIFF:
            rank = low + int(steps.argmax())
    return rank, False


def _looks_like_noise(values: Tensor, count: int) -> bool:
    """Whether the smallest singular value is not far below the others, as noise has it.

    Args:
        values: singular values, the largest first.
        count: number of rows that they come from.
    """
    if len(values) < _FEWEST:
        return True
    share = len(values) / max(count, len(values))
    # The nearer the matrix is to a square one, the smaller the smallest of noise may be.
    lowest = float(values.median()) * (1 - math.sqrt(share))
    return share > 0.5 or float(values[-1]) * _UNEVEN > lowest


def _floor(count: int, width: int) -> float:
    """Singular values of roundings as large as expected are no larger than this."""
    return _ABOVE_PRIOR * (math.sqrt(count) + math.sqrt(width))


def _stands_clear(values: Tensor, rank: int, floor: float) -> bool:
    """Whether no value is anywhere near the floor, on its upper side."""
    return not rank or float(values[rank - 1]) > _CLIFF * floor


def _measured(
    rest: Tensor, columns: Tensor, variance: Tensor, size: Tensor, width: int
) -> Tensor | None:
    """Variance of an entry of each row, as far as what is left over shows.

    One part of it follows the size of the row, as roundings do, and one does not, as noise does.

    Args:
        rest: (rows, width) what is left, each row in units of `variance`.
        columns: (rows, rank) the span over rows.
        variance: (rows,) as it was thought to be.
        size: (rows,) typical entry of each row.
        width: dimensions that are left over.
    """
    free = 1 - columns.square().sum(1)
    some = free > 0.1
    if width < 8 or int(some.sum()) - columns.shape[1] < 8:
        return None
    seen = rest[some].square().sum(1) * variance[some] / (width * free[some])
    scale = float(seen.mean())
    if scale == 0.0:
        return None
    parts = torch.stack([size.square() / float(size.square().mean()), torch.ones_like(size)], 1)
    # Weighted by what they are fitted with: relative deviations count.
    fitted = seen.clamp(min=1e-3 * scale)
    for _ in range(4):
        found = _fit_two(parts[some] / fitted[:, None], seen / fitted)
        fitted = (parts[some] @ found).clamp(min=1e-6 * scale)
    return (parts @ found).clamp(min=1e-6 * scale)


def _fit_two(columns: Tensor, values: Tensor) -> Tensor:
    """Least squares with two coefficients, none of them negative.

    Example:
        >>> _fit_two(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([2.0, 1.0])).tolist()
        [1.5, 0.0]
    """
    gram, right = columns.T @ columns, columns.T @ values
    sizes = gram.diagonal()
    if float(gram.det()) > torch.finfo(gram.dtype).eps * float(sizes.prod()):
        both: Tensor = torch.linalg.solve(gram, right)
        if bool((both >= 0).all()):
            return both
    # Otherwise one of them is 0: the one that explains less alone.
    single = (right / sizes).clamp(min=0.0)
    best = (single * right).argmax()
    return torch.where(torch.arange(2) == best, single, 0.0)


def _unevenness(ratios: Tensor) -> float:
    """How much more some neurons' noise differs from what was thought than others'."""
    ends = torch.quantile(ratios, torch.tensor([0.05, 0.95], dtype=ratios.dtype))
    return math.sqrt(float(ends[1] / ends[0]))
