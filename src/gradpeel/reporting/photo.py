"""A photograph recovered tile by tile from one gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset, assemble
from gradpeel.reporting.matching import evenly, found_at, rounds_of
from gradpeel.reporting.rounds import what_was_sent
from gradpeel.reporting.style import bare, heading, new_figure, place_axes
from gradpeel.reporting.words import counted, scientific

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["photograph_read", "rebuilt_photo"]

STAGES = 4
WIDTH, MARGIN, GAP, TOP, CAPTION = 8.4, 0.1, 0.1, 0.62, 0.24
"""Inches: the figure, its margin, between two pictures, for the heading, above a picture."""
ASPECT = 416 / 640


def rebuilt_photo(audit: Audit, dataset: Dataset) -> Figure:
    """Draw a photograph, what was read out of the gradient, and stages on the way.

    Args:
        audit: a round on tiles of the embedded set `photos`, in any order.
        dataset: that set.

    Returns:
        Axes for the client's photograph, for the rebuilt one and for up to four stages, after
        rounds that are evenly spaced. Grey is where no tile is.

    Example:
        >>> from gradpeel import audit
        >>> from gradpeel.datasets import draw_batch, load
        >>> from gradpeel.networks import mlp
        >>> data = load("photos")
        >>> batch = draw_batch(data, 4)
        >>> model = mlp(3072, 10, (90,), rng=np.random.default_rng(0), sample_shape=(32, 32, 3))
        >>> figure = rebuilt_photo(audit(model, batch.x, batch.y), data)
        >>> [axes.get_title() for axes in figure.axes][:2]
        ["the client's photograph", 'what the server reads: ...']
    """
    tiles = _Tiles(audit, dataset)
    last = int(tiles.rounds.max())
    stages = evenly(1, last, STAGES + 1)[:-1] if last else []
    large, small = ((WIDTH - 2 * MARGIN + GAP) / n - GAP for n in (2, STAGES))
    lower = TOP + CAPTION + large * ASPECT + GAP + CAPTION
    figure = new_figure(WIDTH, lower + (small * ASPECT + MARGIN if stages else -CAPTION))
    whose = "a tampered network" if audit.design.active else "an untouched network"
    error = audit.score.max_abs_error
    worst = "" if error is None else f"; largest error {scientific(error)}"
    heading(
        figure,
        f"A photograph recovered from {what_was_sent(audit)} of {whose}",
        f"a batch of {counted(audit.score.batch_size, 'tile')}, values in [0, 1]{worst}",
    )
    left = [MARGIN + column * (large + GAP) for column in range(2)]
    original = place_axes(figure, left[0], TOP + CAPTION, large, large * ASPECT)
    _draw(original, tiles.originals(), "the client's photograph")
    rebuilt = place_axes(figure, left[1], TOP + CAPTION, large, large * ASPECT)
    _draw(rebuilt, tiles.rebuilt(last), f"what the server reads: {tiles.count(last)}")
    for column, number in enumerate(stages):
        side = MARGIN + column * (small + GAP)
        axes = place_axes(figure, side, lower, small, small * ASPECT)
        _draw(axes, tiles.rebuilt(number), f"after round {number}: {tiles.count(number)}")
    return figure


def photograph_read(audit: Audit, dataset: Dataset) -> NDArray[np.float64]:
    """What the server reads of a photograph, (416, 640, 3) in [0, 1]; grey where it reads nothing.

    Args:
        audit: a round on tiles of the embedded set `photos`, in any order.
        dataset: that set.
    """
    tiles = _Tiles(audit, dataset)
    return np.clip(tiles.rebuilt(int(tiles.rounds.max())), 0, 1)


class _Tiles:
    """Where each tile of the batch belongs in the photograph, and when it was recovered."""

    def __init__(self, audit: Audit, dataset: Dataset) -> None:
        whole = torch.from_numpy(dataset.x_train).flatten(1)
        # The batch may be shuffled: a tile's place is where the photograph has the same tile.
        places = torch.cdist(audit.truth.double().flatten(1), whole).argmin(1).numpy()
        found = found_at(audit)
        recovered = found >= 0
        self._true = np.zeros_like(dataset.x_train)
        self._found = np.zeros_like(dataset.x_train)
        self._in_batch = np.zeros(len(whole), dtype=bool)
        self.rounds = np.zeros(len(whole), dtype=np.int64)
        self._true[places] = audit.truth.double().numpy()
        self._found[places[recovered]] = audit.recovery.samples.numpy()[found[recovered]]
        self._in_batch[places] = True
        self.rounds[places] = rounds_of(audit)

    def originals(self) -> NDArray[np.float64]:
        return assemble(self._true, self._in_batch)

    def rebuilt(self, number: int) -> NDArray[np.float64]:
        """The photograph after round `number`."""
        return assemble(self._found, self._by(number))

    def count(self, number: int) -> str:
        return counted(int(self._by(number).sum()), "tile")

    def _by(self, number: int) -> NDArray[np.bool_]:
        return (self.rounds > 0) & (self.rounds <= number)


def _draw(axes: Axes, photograph: NDArray[np.float64], title: str) -> None:
    axes.imshow(np.clip(photograph, 0, 1), aspect="auto")
    axes.set_title(title, size=8, pad=3)
    bare(axes)
