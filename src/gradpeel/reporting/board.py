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
from gradpeel.reporting.matching import evenly, found_at, rounds_of
from gradpeel.reporting.rounds import what_was_sent
from gradpeel.reporting.style import GREY, VERMILLION, bare, heading, new_figure, place_axes
from gradpeel.reporting.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Board", "activation_grid_rounds", "grid_picture"]

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
        known are blank, those recovered in this round are tinted, and a dot marks each neuron that
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
        ['start: 8 samples', 'round 1: ... samples recovered']
    """
    board = Board(audit)
    last = int(board.rounds.max())
    shown = [0, *(evenly(1, last, PANELS - 1) if last else [])]
    columns, rows = min(len(shown), COLUMNS), -(-len(shown) // COLUMNS)
    figure = new_figure(
        LEFT + max(columns, 2) * (WIDTH + GAP) - 0.25, TOP + rows * (HEIGHT + GAP) - 0.1
    )
    heading(
        figure,
        f"{what_was_sent(audit).capitalize()}, peeled round by round",
        "dark: fires; tinted: recovered in this round; dot: only this sample still fires it",
    )
    for panel, number in enumerate(shown):
        row, column = divmod(panel, COLUMNS)
        left, top = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP)
        axes = place_axes(figure, left, top, WIDTH, HEIGHT)
        board.draw(axes, number)
        if number:
            axes.set_title(
                f"round {number}: {counted(board.recovered(number), 'sample')} recovered", size=9
            )
            below = f"{board.known(number)} of {audit.score.batch_size} recovered so far"
        else:
            axes.set_title(f"start: {counted(audit.score.batch_size, 'sample')}", size=9)
            below = "samples, most atypical on the right"
        axes.set_xlabel(below, size=8, color=GREY)
        if column == 0:
            axes.set_ylabel("neurons, most active on top", size=8, color=GREY)
    return figure


class Board:
    """The grid of an audit in drawing order, and when each sample is recovered.

    Attributes:
        rounds: (batch,) the round in which each column is recovered, in drawing order; 0 for never.
    """

    def __init__(self, audit: Audit) -> None:
        exposure = audit.exposure
        # Both sorts are stable, so that equal rows and columns keep their places.
        self._rows = np.argsort(-exposure.degrees.numpy(), kind="stable")
        columns = np.argsort(exposure.atypicality.numpy(), kind="stable")
        self._grid = exposure.grid.numpy()[self._rows][:, columns]
        self.rounds = rounds_of(audit)[columns]
        places = found_at(audit)[columns].tolist()
        self._isolating = [audit.recovery.isolating[p] if p >= 0 else () for p in places]

    def recovered(self, number: int) -> int:
        """How many samples are recovered in round `number`."""
        return int((self.rounds == number).sum())

    def known(self, number: int) -> int:
        """How many samples are known at the end of round `number`."""
        return int(((self.rounds > 0) & (self.rounds <= number)).sum())

    def draw(self, axes: Axes, number: int, *, dot: float = 3.0) -> None:
        """Draw the grid after round `number`; 0 is the start.

        Args:
            axes: where.
            number: the round.
            dot: size of the dots, in points.
        """
        falls = (self.rounds == number) & (number > 0)
        gone = (self.rounds > 0) & (self.rounds < number)
        neurons, batch_size = self._grid.shape
        axes.imshow(
            grid_picture(self._grid, gone=gone, falls=falls),
            aspect="auto",
            interpolation="nearest",
            extent=(-0.5, batch_size - 0.5, neurons - 0.5, -0.5),
        )
        dots = [
            (column, row)
            for column in np.flatnonzero(falls).tolist()
            for row in np.flatnonzero(np.isin(self._rows, self._isolating[column])).tolist()
        ]
        if dots:
            axes.plot(*zip(*dots, strict=True), ".", color=VERMILLION, markersize=dot)
        bare(axes)


def grid_picture(
    grid: NDArray[np.bool_],
    *,
    gone: NDArray[np.bool_] | None = None,
    falls: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """An activation grid as a picture that a panel has room for.

    Args:
        grid: (neurons, batch) of bool, in drawing order.
        gone: (batch,) of bool, the columns that are blank.
        falls: (batch,) of bool, the columns that are tinted.

    Returns:
        (rows, columns, 3) colours, at most `PIXELS` each way.
    """
    picture = np.where(grid[..., None], _rgb(FIRES), _rgb(SILENT))
    for columns, colour in ((gone, GONE), (falls, GOING)):
        if columns is not None:
            picture[:, columns] = _rgb(colour)
    return _shrink(_shrink(picture, 0), 1)


def _shrink(picture: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Average neighbours until at most `PIXELS` are left: a panel has no room for more.

    Dropping rows instead of averaging them would make rare firings vanish.
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
