"""Work on matrices as wide as the features, in blocks, so that none is held in memory twice.

An update of 224 x 224 x 3 features and a thousand neurons has 150 million entries. It stays as it
was sent, in its own dtype; blocks of columns are converted to float64 one at a time. The decoder
reads it twice: once at the start, for everything that it needs to know about it, and once at the
end, to write the samples.

Example:
    >>> gradient, weight = torch.ones(3, 10), torch.ones(3, 10)
    >>> product, _ = survey(gradient, weight, multiply=True)
    >>> product.unique().tolist()
    [10.0]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS

__all__ = [
    "batches",
    "combine",
    "gaussian",
    "generator",
    "mean_square",
    "norms_of_products",
    "survey",
]

_BLOCK_BYTES = 2**25
"""Size of a block of columns in float64."""

_ROWS = 16
"""Rows that are multiplied at once."""

_NEARLY_ALL = 0.95
"""From this number on, rows are processed in place; fewer are gathered first."""

_CHUNK = 128
"""Samples written at once."""


def generator() -> torch.Generator:
    """A random generator that always starts the same, on the CPU, hence equal on every device."""
    return torch.Generator("cpu").manual_seed(0)


def gaussian(*shape: int, like: Tensor, source: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers of the dtype and on the device of another tensor."""
    drawn = torch.randn(shape, generator=source or generator(), dtype=torch.float64, device="cpu")
    return drawn.to(like)


def survey(gradient: Tensor, weight: Tensor, *, multiply: bool) -> tuple[Tensor, Tensor]:
    """Read a weight gradient G once, for everything that the decoder needs to know about it.

    Args:
        gradient: (neurons, features) G, in any dtype.
        weight: (neurons, features) W, in any dtype.
        multiply: whether the product is wanted.

    Returns:
        (neurons, neurons) the product G W^T, without columns where it is not wanted, and
        (neurons, few) a sketch, G in random directions: the norm of any combination of its rows is
        expected to be that of the same combination of these.
    """
    neurons, features = gradient.shape
    # Neurons that no sample fires need not be multiplied.
    used = _not_zero(gradient)
    pack = len(used) < _NEARLY_ALL * neurons
    count = len(used) if pack else neurons
    product = gradient.new_empty(count, neurons if multiply else 0, dtype=torch.float64)
    sketch = product.new_zeros(count, LIMITS.sketch_width)
    source = generator()
    for block in _blocks(neurons, features):
        g = (gradient[used, block] if pack else gradient[:, block]).double()
        if multiply:
            product.addmm_(g, weight[:, block].double().T, beta=block.start > 0)
        sketch.addmm_(g, gaussian(g.shape[1], LIMITS.sketch_width, like=g, source=source))
    if pack:
        product, sketch = (
            part.new_zeros(neurons, part.shape[1]).index_copy_(0, used, part)
            for part in (product, sketch)
        )
    return product, sketch / math.sqrt(LIMITS.sketch_width)


def _not_zero(gradient: Tensor) -> Tensor:
    """Indices of rows that are not all zero."""
    # A few columns show nearly all of them.
    found = (gradient[:, :_ROWS] != 0).any(1)
    left = (~found).nonzero()[:, 0]
    for some in batches(len(left), _ROWS):
        found[left[some]] = (gradient[left[some]] != 0).any(1)
    return found.nonzero()[:, 0]


def norms_of_products(these: Tensor, those: Tensor, rows: Tensor) -> Tensor:
    """(n,) norms of the products, entry by entry, of some rows of two wide matrices."""
    found = rows.new_zeros(len(rows), dtype=torch.float64)
    for some in batches(len(rows), _ROWS):
        products = these[rows[some]].double() * those[rows[some]].double()
        found[some] = products.norm(dim=1)
    return found


def mean_square(entries: Tensor, *, centred: bool = False) -> float:
    """Mean of the squares of the entries of a wide matrix, or of their distances from the mean."""
    total = square = 0.0
    for block in _blocks(*entries.shape):
        some = entries[:, block].double()
        total, square = total + float(some.sum()), square + float(some.norm()) ** 2
    count = max(entries.numel(), 1)
    return max(0.0, square / count - (total / count) ** 2) if centred else square / count


def combine(combinations: Tensor, gradient: Tensor) -> Tensor:
    """(n, features) combinations (n, neurons) of the rows of a gradient (neurons, features)."""
    neurons, features = gradient.shape
    found = combinations.new_empty(len(combinations), features)
    if not len(combinations):
        return found
    used = (combinations != 0).any(0).nonzero()[:, 0]
    combinations = combinations[:, used]
    # Neurons in the order in which samples need them: early samples consist of few.
    starts, order = (combinations != 0).int().argmax(0).sort(stable=True)
    combinations, used = combinations[:, order], used[order]
    for block in _blocks(neurons, features):
        needed = gradient[used, block].double()
        for some in batches(len(combinations), _CHUNK):
            count = int((starts < some.stop).sum())
            torch.mm(combinations[some, :count], needed[:count], out=found[some, block])
    return found


def _blocks(neurons: int, features: int) -> Iterator[slice]:
    return batches(features, max(1, _BLOCK_BYTES // (8 * max(neurons, 1))))


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` that cover `count` items."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))
