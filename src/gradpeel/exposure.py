"""What a client can know before it sends: which of its samples would be peeled, and when.

Peeling looks at a batch only through the activation grid: neuron j fires on sample i, or it does
not (the paper's section "Which Samples Are Most at Risk"). A row of the grid with one mark isolates
a sample; take out the sample's column, and other rows may be down to one mark. The samples
reached this way are those that any peeling decoder can recover; their share is the oracle rate.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> exposure(model, torch.randn(5, 8)).oracle_rate
    1.0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.target import Target, split

__all__ = ["Exposure", "exposure", "grid_of", "peel_grid"]


def exposure(model: nn.Module, x: Tensor) -> Exposure:
    """Tell which samples of a batch one gradient of this model gives away: one forward pass.

    It needs no labels and no gradient, so a client can run it before it sends anything.

    Args:
        model: The model as received; see `gradpeel.target.split` for what can be handled.
        x: (batch, *sample_shape) samples; cast to the model's dtype, as training on them would.

    Returns:
        The activation grid of the batch and the round in which each sample falls.

    Raises:
        InputError: When the batch is empty or holds NaN or infinite values.
        ModelRefusedError: When the model has no target, with every reason.
    """
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(f"x of shape {tuple(x.shape)}: expected (batch, *sample_shape), not empty")
    if not bool(x.isfinite().all()):
        # No neuron fires on NaN: such a sample would pass for one that cannot be reached.
        raise InputError("x with NaN or infinite values: expected finite values")
    target = split(model)
    with torch.no_grad():
        return Exposure.of(grid_of(target, target.front(x.to(target.weight))))


def grid_of(target: Target, rows: Tensor) -> Tensor:
    """The activation grid of a batch: does neuron j fire on sample i?

    Args:
        target: The attacked layer.
        rows: (batch, features), what the target sees of the batch, in the target's dtype.

    Returns:
        (neurons, batch) of bool.
    """
    return (nn.functional.linear(rows, target.weight, target.bias) > 0).T


def peel_grid(grid: Tensor | NDArray[np.bool_]) -> Tensor:
    """Peel an activation grid: the round in which each sample falls.

    All samples that are isolated in a round fall jointly, as in the paper's loop.

    Args:
        grid: (neurons, batch) of bool.

    Returns:
        (batch,) int64: 1 for the samples isolated from the start, 2 for those isolated once these
        are gone, and so on; 0 for those that are never reached.

    Raises:
        InputError: When the grid is not a matrix of bool with at least one sample.

    Example:
        >>> peel_grid(np.array([[True, False, False], [True, True, False]])).tolist()
        [1, 2, 0]
    """
    marks = grid.numpy(force=True) if isinstance(grid, Tensor) else grid
    if marks.ndim != 2 or marks.shape[1] == 0 or marks.dtype != np.bool_:
        raise InputError(
            f"grid of shape {marks.shape} and dtype {marks.dtype}: expected bool (neurons, batch)"
        )
    batch = marks.shape[1]
    # Two numbers for each neuron are enough: how many samples still fire it, and the sum of their
    # indices, which for a single one *is* its index. Both follow from one matrix product, and from
    # thin ones after it; float32 is the fastest type that does them, exact up to 2^24.
    exact = np.float32 if batch * batch < 2**25 else np.float64
    columns = np.ascontiguousarray(marks.T, dtype=exact)
    count_and_index = np.stack([np.ones(batch, exact), np.arange(batch, dtype=exact)])
    left = count_and_index @ columns
    rounds = np.zeros(batch, np.int64)
    current = 1
    while (isolated := left[1, left[0] == 1]).size:
        fallen = np.unique(isolated.astype(np.int64))
        rounds[fallen] = current
        left -= count_and_index[:, fallen] @ columns[fallen]
        current += 1
    return torch.from_numpy(rounds)


@dataclass(frozen=True, eq=False, repr=False)
class Exposure:
    """An activation grid and what peeling makes of it.

    "Not reached" says that peeling this one gradient stops short of the sample; it does not say
    that the sample is safe.

    Attributes:
        grid: (neurons, batch) of bool, does neuron j fire on sample i.
        rounds: (batch,) int64, the round in which each sample falls; 0 for never.
    """

    grid: Tensor
    rounds: Tensor

    @classmethod
    def of(cls, grid: Tensor) -> Exposure:
        """Peel a grid (neurons, batch) of bool.

        Example:
            >>> Exposure.of(torch.tensor([[True, False, False], [True, True, False]]))
            Exposure(neurons=2, batch=3, reached=2, rounds_count=2)
        """
        return cls(grid, peel_grid(grid))

    def __repr__(self) -> str:
        neurons, batch = self.grid.shape
        return (
            f"Exposure(neurons={neurons}, batch={batch}, reached={int(self.reached.sum())}, "
            f"rounds_count={self.rounds_count})"
        )

    @property
    def degrees(self) -> Tensor:
        """(neurons,) int64: the number of samples that fire each neuron."""
        return self.grid.sum(dim=1)

    @property
    def firing_probabilities(self) -> Tensor:
        """(neurons,) float64: p_j = d_j / B."""
        return self.degrees.double() / self.grid.shape[1]

    @property
    def atypicality(self) -> Tensor:
        """(batch,) float64: the sum of 1 / p_j over the neurons that a sample fires.

        Large for samples that fire neurons which others leave silent: these fall first.
        """
        # A silent neuron is in nobody's sum; any finite number in place of 1 / 0 will do.
        rarity = 1 / self.firing_probabilities.where(self.degrees > 0, 1)
        return self.grid.T.double() @ rarity

    @property
    def singletons(self) -> Tensor:
        """(neurons,) bool: the neurons that exactly one sample fires."""
        return self.degrees == 1

    @property
    def isolated(self) -> Tensor:
        """(batch,) bool: the samples with a singleton of their own; the single-pass baseline."""
        return self.rounds == 1

    @property
    def reached(self) -> Tensor:
        """(batch,) bool: the samples that peeling recovers."""
        return self.rounds > 0

    @property
    def oracle_rate(self) -> float:
        """Share of the batch that peeling recovers: the bound for any peeling decoder."""
        return float(self.reached.double().mean())

    @property
    def rounds_count(self) -> int:
        """Number of rounds until peeling ends; 0 when it cannot start."""
        return int(self.rounds.max())

    @property
    def degree_histogram(self) -> Tensor:
        """(batch + 1,) int64: how many neurons have degree 0, 1, ..., B."""
        return torch.bincount(self.degrees, minlength=self.grid.shape[1] + 1)
