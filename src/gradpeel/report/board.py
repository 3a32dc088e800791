"""The activation grid round by round (paper, section "Which Samples Are Most at Risk", its board).

Rows are neurons, those that fire on many samples on top; columns are samples, the most atypical on
the right. The cascade eats its way in from the bottom right, where rare neurons meet atypical
samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.report.matching import evenly, found_at, rounds_of
from gradpeel.report.style import GREY, VERMILLION, bare, heading, new_figure, place_axes
from gradpeel.report.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["activation_grid_rounds"]

PANELS, COLUMNS = 6, 3
WIDTH, HEIGHT, GAP, LEFT, TOP = 2.8, 2.8, 0.45, 0.35, 0.9
"""Inches: a panel, between two panels, margins."""
PIXELS = 400

FIRES, SILENT, GONE, GOING = "#30506B", "#FFFFFF", "#E4E4E4", "#FBE3C0"


def activation_grid_rounds(audit: Audit) -> Figure:
    """Draw the activation grid at the start and after up to five rounds of the cascade.

    Args:
        audit: the simulated round.

    Returns:
        A panel for the whole grid, then one for each round drawn: the columns of samples that are
        gone are blank, those that fell in this round are tinted, and a dot marks each neuron that
        isolated one of them. Of a long cascade the rounds are evenly spaced, first and last
        included.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from gradpeel import audit
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> figure = activation_grid_rounds(audit(model, torch.rand(8, 30), torch.arange(8) % 2))
        >>> [axes.get_title() for axes in figure.axes][:2]
        ['start: 8 samples', 'round 1: ... samples removed']
    """
    rounds = rounds_of(audit)
    last = int(rounds.max())
    shown = [0, *(evenly(1, last, PANELS - 1) if last else [])]
    columns, rows = min(len(shown), COLUMNS), -(-len(shown) // COLUMNS)
    figure = new_figure(
        LEFT + max(columns, 2) * (WIDTH + GAP) - 0.25, TOP + rows * (HEIGHT + GAP) - 0.1
    )
    heading(
        figure,
        "One gradient, peeled round by round",
        "dark: fires; tinted: falls in this round; dot: no other sample fires this neuron any more",
    )
    board = _Board(audit, rounds)
    for panel, number in enumerate(shown):
        row, column = divmod(panel, COLUMNS)
        left, top = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP)
        axes = place_axes(figure, left, top, WIDTH, HEIGHT)
        board.draw(axes, number)
        if column == 0:
            axes.set_ylabel("neurons, densest on top", size=8, color=GREY)
    return figure


class _Board:
    """The grid in drawing order, and who falls when."""

    def __init__(self, audit: Audit, rounds: NDArray[np.int64]) -> None:
        exposure = audit.exposure
        # Both sorts are stable, so that equal rows and columns keep their places.
        self._rows = np.argsort(-exposure.degrees.numpy(), kind="stable")
        self._columns = np.argsort(exposure.atypicality.numpy(), kind="stable")
        self._grid = exposure.grid.numpy()[self._rows][:, self._columns]
        self._rounds = rounds[self._columns]
        places = found_at(audit)[self._columns].tolist()
        self._isolating = [audit.recovery.isolating[p] if p >= 0 else () for p in places]

    def draw(self, axes: Axes, number: int) -> None:
        """Draw the grid after round `number`; 0 is the start."""
        falls = (self._rounds == number) & (number > 0)
        gone = (self._rounds > 0) & (self._rounds < number)
        picture = np.where(self._grid[..., None], _rgb(FIRES), _rgb(SILENT))
        picture[:, gone], picture[:, falls] = _rgb(GONE), _rgb(GOING)
        neurons, batch_size = self._grid.shape
        extent = (-0.5, batch_size - 0.5, neurons - 0.5, -0.5)
        axes.imshow(
            _shrink(_shrink(picture, 0), 1), aspect="auto", interpolation="nearest", extent=extent
        )
        dots = [
            (column, row)
            for column in np.flatnonzero(falls).tolist()
            for row in np.flatnonzero(np.isin(self._rows, self._isolating[column])).tolist()
        ]
        if dots:
            axes.plot(*zip(*dots, strict=True), ".", color=VERMILLION, markersize=3)
        bare(axes)
        if number:
            title = f"round {number}: {counted(int(falls.sum()), 'sample')} removed"
            below = f"{int((falls | gone).sum())} of {batch_size} gone"
        else:
            title = f"start: {counted(batch_size, 'sample')}"
            below = "samples, most atypical right"
        axes.set_title(title, size=9)
        axes.set_xlabel(below, size=8, color=GREY)


def _shrink(picture: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Average neighbours until at most `PIXELS` are left: a panel has no room for more.

    Dropping rows in place of averaging them would make rare firings vanish.
    """
    length = picture.shape[axis]
    if length <= PIXELS:
        return picture
    starts = np.linspace(0, length, PIXELS, endpoint=False).astype(np.int64)
    sizes = np.diff(starts, append=length)
    sums = np.add.reduceat(picture, starts, axis=axis)
    return np.asarray(sums / sizes.reshape((-1, 1, 1) if axis == 0 else (-1, 1)))


def _rgb(colour: str) -> NDArray[np.float64]:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
