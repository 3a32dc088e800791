"""What a client can know before it sends: which of its samples would be peeled, and when.

Peeling sees a batch only through the activation grid: neuron j fires on sample i, or it does not
(the paper's section "Which Samples Are Most at Risk"). A row of the grid with one mark isolates a
sample; remove the sample's column, and other rows may be left with one mark. The samples reached
this way are those that any peeling decoder can recover; their share is the peeling bound. It does
not limit other attacks: the row cascade (`gradpeel.decoder.rows`) reads whole batches in which
peeling reaches no sample.

To the attack, copies of a sample are one sample: they fire the same neurons, and their gradients
add up to a multiple of the same row. Identical samples are therefore peeled as one, in the same
round: a neuron that only the copies of one sample fire isolates that sample.

Example:
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> x = torch.randn(5, 8)
    >>> exposure(model, x).peeling_bound
    1.0
    >>> exposure(model, torch.cat([x, x[:2]])).peeling_bound
    1.0
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradpeel.coercion import Samples, as_samples
from gradpeel.errors import InputError
from gradpeel.inputs import NetworkInput
from gradpeel.target import Target, split

__all__ = [
    "Exposure",
    "copies_at",
    "copies_of",
    "ever_fired",
    "exposure",
    "exposure_at",
    "grid_of",
    "peel_grid",
    "rows_of",
]


def exposure(model: nn.Module, x: Samples, *, layer: str | None = None) -> Exposure:
    """Find the samples of a batch that peeling reads from one gradient, in one forward pass.

    It needs no labels and no gradient, so a client can run it before it sends anything.

    Args:
        model: The model as received, in the mode in which it is trained; see `gradpeel.split` for
            what can be handled. Dropout in front of the layer draws its own masks here.
        x: (batch, *sample_shape) samples, or anything else that holds them, such as a DataFrame or
            a DataLoader, of which the first batch is taken; see `gradpeel.coercion`. They are cast
            to the model's dtype, as training on them would.
        layer: Name of the layer to look at, such as "classifier.0"; by default the first one that
            can be read. Peeling reads what enters it: samples, or features of them.

    Returns:
        The activation grid of the batch and the round in which each sample is recovered. If the
        layer acts on every token of a sequence, tokens are its samples.

    Raises:
        InputError: When the batch is empty or holds NaN or infinite values.
        ModelRefusedError: When the model has no target, with every reason.
    """
    target = split(model, layer=layer)
    # No neuron fires on NaN: such a sample would pass for one that cannot be reached.
    return exposure_at(target, as_samples(model, x, None, target.weight.dtype).x)


def exposure_at(target: Target, x: NetworkInput) -> Exposure:
    """The same as `exposure`, for a model that has already been split and samples it takes."""
    with torch.no_grad():
        rows = target.rows(x)
        copies = copies_at(target, x, rows)
        # Equal rows may round differently elsewhere in the batch; they are one sample all the same.
        return Exposure.of(grid_of(target, rows).T[copies].T, copies)


def copies_of(rows: Tensor) -> Tensor:
    """Find the samples that are the same: rows with equal entries.

    Args:
        rows: (batch, features), what the target sees of the batch, in the target's dtype.

    Returns:
        (batch,) int64: for each sample the index of the first identical one, often its own.

    Example:
        >>> copies_of(torch.tensor([[1.0, 2.0], [0.0, 2.0], [1.0, 2.0]])).tolist()
        [0, 1, 0]
    """
    # A table of the rows' bytes takes one pass; sorting long rows would take several. Adding zero
    # gives 0 and -0 the same bytes.
    seen: dict[bytes, int] = {}
    laid_out = (rows + 0.0).contiguous().view(torch.uint8).numpy(force=True)
    firsts = [seen.setdefault(row.tobytes(), index) for index, row in enumerate(laid_out)]
    return torch.tensor(firsts)


def copies_at(target: Target, x: NetworkInput, rows: Tensor) -> Tensor:
    """The same as `copies_of` for a batch and its rows, where rows are computed by a network.

    The rows of equal inputs may then round differently; they are one sample all the same, unless
    the front gives each another row on purpose, as dropout does.
    """
    if not target.front.keeps_order and target.front.unsteady is None:
        rows = rows[rows_of(copies_of(x.flatten(1)), len(rows) // len(x)).to(rows.device)]
    return copies_of(rows)


def rows_of(samples: Tensor, each: int) -> Tensor:
    """The rows of some samples, given by their indices, where each sample has several.

    Example:
        >>> rows_of(torch.tensor([0, 2]), each=3).tolist()
        [0, 1, 2, 6, 7, 8]
    """
    return (samples[:, None] * each + torch.arange(each)).flatten()


def grid_of(target: Target, rows: Tensor) -> Tensor:
    """The activation grid of a batch: does neuron j fire on sample i?

    Args:
        target: The attacked layer.
        rows: (batch, features), what the target sees of the batch, in the target's dtype.

    Returns:
        (neurons, batch) of bool.
    """
    return (target.pre_activations(rows) > 0).T


def ever_fired(grids: Iterable[Tensor], copies: Tensor) -> Tensor:
    """The activation grid of a local training: did neuron j fire on sample i at any step?

    Over several steps of SGD the target's weights change by a sum of gradients in which sample i
    adds to neuron j as soon as it fired it once. Peeling reads that sum as it reads one gradient,
    so its bound is that of this grid.

    Args:
        grids: (neurons, batch) of bool, one for each model state in which a gradient was computed;
            without marks for samples that took no part in that step.
        copies: (batch,) int64, for each sample the index of the first identical one; copies may
            have taken part in different steps, and count as one sample.

    Returns:
        (neurons, batch) of bool.

    Raises:
        InputError: When there is no grid, or they differ in shape.

    Example:
        >>> before = torch.tensor([[True, False], [False, False]])
        >>> after = torch.tensor([[False, False], [True, False]])
        >>> ever_fired([before, after], torch.arange(2)).int().tolist()
        [[1, 0], [1, 0]]
        >>> ever_fired([before, after], torch.zeros(2, dtype=torch.int64)).int().tolist()
        [[1, 1], [1, 1]]
    """
    fired: Tensor | None = None
    for grid in grids:
        if fired is not None and grid.shape != fired.shape:
            shapes = f"{tuple(grid.shape)} and {tuple(fired.shape)}"
            raise InputError(f"grids of shape {shapes}: expected the same neurons and samples")
        fired = grid if fired is None else fired | grid
    if fired is None:
        raise InputError("grids: expected at least one")
    marks = torch.zeros(fired.shape, dtype=torch.int64)
    return marks.index_add_(1, copies, fired.long())[:, copies] > 0


def peel_grid(grid: Tensor | NDArray[np.bool_]) -> Tensor:
    """Peel an activation grid: the round in which each sample is recovered.

    All samples that are isolated in a round are removed together, as in the paper's loop.

    Args:
        grid: (neurons, batch) of bool.

    Returns:
        (batch,) int64: 1 for the samples isolated from the start, 2 for those isolated once these
        are removed, and so on; 0 for those that are never reached.

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

    "Not reached" means that peeling this one gradient stops before the sample; it does not mean
    that the sample is safe.

    Degrees, firing probabilities and atypicality count every copy of a sample; rounds, singletons
    and everything derived from them count the copies of a sample once.

    Attributes:
        grid: (neurons, batch) of bool: whether neuron j fires on sample i.
        rounds: (batch,) int64: the round in which each sample is recovered; 0 for never.
        copies: (batch,) int64: for each sample the index of the first identical one.
    """

    grid: Tensor
    rounds: Tensor
    copies: Tensor

    @classmethod
    def of(cls, grid: Tensor, copies: Tensor | None = None) -> Exposure:
        """Peel a grid.

        Args:
            grid: (neurons, batch) of bool.
            copies: (batch,) int64, for each sample the index of the first identical one. By
                default no two are identical: samples that fire the same neurons need not be.

        Raises:
            InputError: When the grid is not one, or copies do not fire the same neurons.

        Example:
            >>> grid = torch.tensor([[True, False, True], [True, True, True]])
            >>> Exposure.of(grid)
            Exposure(neurons=2, batch=3, reached=0, rounds_count=0)
            >>> Exposure.of(grid, copies=torch.tensor([0, 1, 0]))
            Exposure(neurons=2, batch=3, reached=3, rounds_count=2)
        """
        if copies is None:
            return cls(grid, peel_grid(grid), torch.arange(grid.shape[1]))
        _check_copies(copies, grid)
        firsts, places = torch.unique(copies, return_inverse=True)
        return cls(grid, peel_grid(grid.T[firsts].T)[places], copies)

    def __repr__(self) -> str:
        neurons, batch = self.grid.shape
        return (
            f"Exposure(neurons={neurons}, batch={batch}, reached={int(self.reached.sum())}, "
            f"rounds_count={self.rounds_count})"
        )

    @property
    def distinct(self) -> Tensor:
        """(distinct samples,) int64: the index of each sample's first copy."""
        firsts: Tensor = torch.unique(self.copies)
        return firsts

    @property
    def multiplicities(self) -> Tensor:
        """(batch,) int64: how many copies of each sample the batch holds, itself included."""
        return torch.bincount(self.copies, minlength=len(self.copies))[self.copies]

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

        Large for samples that fire neurons which are silent for others: they are recovered first.
        """
        # A silent neuron occurs in no sum; any finite number can replace 1 / 0.
        rarity = 1 / self.firing_probabilities.where(self.degrees > 0, 1)
        return self.grid.T.double() @ rarity

    @property
    def singletons(self) -> Tensor:
        """(neurons,) bool: the neurons that exactly one sample fires, even if it has copies."""
        return self.grid.T[self.distinct].sum(dim=0) == 1

    @property
    def sources(self) -> Tensor:
        """(neurons,) int64: the sample that peeling reads from each neuron; -1 for none.

        A neuron comes to isolate the last of the samples that fire it, if no two of them are last.
        Of several copies it names the first.

        Example:
            >>> Exposure.of(torch.tensor([[True, False], [True, True], [False, False]])).sources
            tensor([ 0,  1, -1])
        """
        firsts = self.distinct
        never = self.grid.shape[1] + 1
        order = torch.where(self.reached, self.rounds, never)[firsts] * self.grid.T[firsts].T
        last, place = order.max(1)
        alone = (last > 0) & (last < never) & ((order == last[:, None]).sum(1) == 1)
        return torch.where(alone, firsts[place], -1)

    @property
    def isolated(self) -> Tensor:
        """(batch,) bool: the samples with a singleton of their own; the single-pass baseline."""
        return self.rounds == 1

    @property
    def reached(self) -> Tensor:
        """(batch,) bool: the samples that peeling recovers."""
        return self.rounds > 0

    @property
    def peeling_bound(self) -> float:
        """Share of the batch that peeling recovers: it limits peeling, not every attack."""
        return float(self.reached.double().mean())

    @property
    def rounds_count(self) -> int:
        """Number of rounds until peeling ends; 0 when it cannot start."""
        return int(self.rounds.max())

    @property
    def degree_histogram(self) -> Tensor:
        """(batch + 1,) int64: how many neurons have degree 0, 1, ..., B."""
        return torch.bincount(self.degrees, minlength=self.grid.shape[1] + 1)


def _check_copies(copies: Tensor, grid: Tensor) -> None:
    batch = grid.shape[1]
    if copies.shape != (batch,) or copies.dtype != torch.int64:
        raise InputError(
            f"copies of shape {tuple(copies.shape)} and dtype {copies.dtype}: "
            f"expected int64 ({batch},), one index a sample"
        )
    own = torch.arange(batch)
    in_range = bool(((copies >= 0) & (copies <= own)).all())
    if not in_range or not torch.equal(copies[copies], copies):
        raise InputError("copies: expected for each sample the index of the first identical one")
    again = (copies != own).nonzero()[:, 0]
    if not torch.equal(grid.T[again], grid.T[copies[again]]):
        raise InputError("copies: identical samples must fire the same neurons, but some do not")
