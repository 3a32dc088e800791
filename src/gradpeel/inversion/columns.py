"""Tables: columns that are looked up in embeddings, beside columns of numbers.

A network of tables often takes codes of categories and numbers in one row, looks the codes up and
puts both side by side. A code has no derivative, so that no descent finds it; but its embedding has
features of its own, where it is looked up like a token. The numbers are then solved for by
themselves.

Formal guarantees, for a row that is called determined:

- The network's own forward pass turns it into the given features, to rounding.
- Each other code is farther away at its own features than twice that distance.
- No direction of the numbers can be changed without changing the features.

Example:
    >>> from torch import nn
    >>> from gradpeel.target import split
    >>> class Table(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.town, self.fc = nn.Embedding(9, 3), nn.Linear(5, 20)
    ...     def forward(self, x):
    ...         town = self.town(x[:, 0].long())
    ...         return self.fc(torch.cat([town, x[:, 1:]], 1)).relu()
    >>> looked_up(split(Table()).front, (3,)).tolist()
    [0]
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gradpeel.errors import InputError
from gradpeel.inversion.forward import TINY, FrontMap, Linearised, norms
from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.search import Search
from gradpeel.inversion.vocabulary import SAME, TRIALS, Vocabulary, tables_of
from gradpeel.target import FeatureFront

__all__ = ["looked_up", "read_columns"]

MakeSearch = Callable[[tuple[FrontMap, FrontMap], tuple[int, ...]], Search]
"""A search with these maps for inputs of this shape."""


def looked_up(front: FeatureFront, shape: tuple[int, ...]) -> Tensor:
    """The places in a flat input of which only the whole number counts: codes of categories."""
    if not tables_of(front):
        return torch.zeros(0, dtype=torch.int64)
    map_ = FrontMap(front, torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand((TRIALS, *shape), generator=generator, dtype=torch.float64)
    slope = Linearised(map_, drawn)
    weights = torch.randn(slope.features.shape, generator=generator, dtype=torch.float64)
    flat = torch.nonzero((slope.pull(weights) == 0).flatten(1).all(0)).flatten()

    def features_at(value: float) -> Tensor:
        # A number of 0 elsewhere might hide what a code does.
        inputs = drawn[:1].flatten(1).repeat(len(flat), 1)
        inputs[torch.arange(len(flat)), flat] = value
        with torch.no_grad():
            return map_(inputs.reshape(-1, *shape))

    if not len(flat):
        return flat
    at = {value: features_at(value) for value in (0.0, 0.25, 1.0, 1.25)}
    is_cut = (at[0.0] == at[0.25]).all(1) & (at[1.0] == at[1.25]).all(1)
    return flat[is_cut & (at[0.0] != at[1.0]).any(1)]


def read_columns(
    front: FeatureFront,
    features: Tensor,
    shape: tuple[int, ...],
    places: Tensor,
    reached: Tensor,
    *,
    make_search: MakeSearch,
    values: Tensor | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Inversion:
    """Find the codes and the numbers that have given features.

    Args:
        front: from inputs to features.
        features: (n, features), in the dtype to search in.
        shape: shape of one input.
        places: where in a flat input the codes stand.
        reached: (n,) relative distance within which features are the same.
        make_search: makes the search for the numbers.
        values: the only values that numbers can have, if any.
        on_progress: called with the number of inputs that are done, and of all.

    Raises:
        InputError: features of codes depend on other columns too.
    """
    vocabulary = Vocabulary(front, shape, places)
    is_number = torch.ones(math.prod(shape), dtype=torch.bool)
    is_number[places] = False
    numbers = torch.nonzero(is_number).flatten()
    owners = vocabulary.owners
    if owners is None or bool((_depends_on(front, shape, numbers) & (owners >= 0)).any()):
        raise InputError(
            f"layer {front.layer!r}: features of the categories depend on other columns too: "
            "expected features of its own for every category"
        )
    exact = features.double()
    found, is_only = vocabulary.look_up(exact, reached * exact.norm(dim=1))
    free = torch.nonzero(owners < 0).flatten()
    wanted = features[:, free]
    maps = (
        _NumbersMap(front, features.dtype, shape, numbers, free),
        _NumbersMap(front, torch.float32, shape, numbers, free),
    )
    share = (norms(features) / norms(wanted).clamp(min=TINY)).double()
    solved = make_search(maps, (len(numbers),)).run(wanted, reached * share, values, on_progress)
    rows = torch.zeros((len(features), math.prod(shape)), dtype=features.dtype)
    rows[:, places] = found.to(rows.dtype)
    rows[:, numbers] = solved.inputs.to(rows.dtype)
    inputs = rows.reshape(-1, *shape)
    residuals = FrontMap(front, features.dtype).distances(inputs, features).double()
    return Inversion(
        layer=front.layer,
        inputs=inputs,
        residuals=residuals,
        starts=solved.starts,
        determined=solved.determined & is_only & (residuals <= reached),
        hidden=solved.hidden,
    )


def _depends_on(front: FeatureFront, shape: tuple[int, ...], numbers: Tensor) -> Tensor:
    """(features,) whether each feature changes with the numbers."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.zeros((TRIALS + 1, math.prod(shape)), dtype=torch.float64)
    drawn[1:, numbers] = torch.rand(
        (TRIALS, len(numbers)), generator=generator, dtype=torch.float64
    )
    with torch.no_grad():
        features = FrontMap(front, torch.float64)(drawn.reshape(-1, *shape))
    changes: Tensor = (features[1:] - features[0]).abs().amax(0)
    return changes > SAME * features.abs().max().clamp(min=TINY)


class _NumbersMap(FrontMap):
    """From the numbers alone, (n, numbers), to the features that no code changes."""

    def __init__(
        self,
        front: FeatureFront,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        numbers: Tensor,
        free: Tensor,
    ) -> None:
        super().__init__(front, dtype)
        self._shape, self._numbers, self._free = shape, numbers, free

    def __call__(self, x: Tensor) -> Tensor:
        none = x.new_zeros((len(x), math.prod(self._shape)))
        rows = none.index_copy(1, self._numbers, x)
        return super().__call__(rows.reshape(-1, *self._shape))[:, self._free]
