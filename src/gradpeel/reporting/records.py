"""True and recovered records, one above the other: for data that is not pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.reporting.captions import fate, true_class, verdict, which
from gradpeel.reporting.matching import evenly, found_at
from gradpeel.reporting.style import GREY, bare, hatched, heading, new_figure, place_axes
from gradpeel.reporting.words import printable, scientific

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_records"]

RECORDS = 8
NAMES = 48
"""More feature names than this cannot stand side by side."""
LETTERS = 160
"""As many letters fit into a line of numbers."""
WIDTH, LEFT, RIGHT, TOP, STRIP, STEP = 12.0, 1.0, 1.0, 0.8, 0.22, 0.54
"""Inches: the figure, its margins, the height of a strip, from one record to the next."""


def draw_records(audit: Audit, dataset: Dataset) -> Figure:
    """Draw records of the batch as strips: true values above, what was read out below.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from; says what labels and features are called.

    Returns:
        Two axes a record, for up to eight records evenly spaced over the batch. A feature's colour
        runs from its smallest to its largest value in the batch; where there is room, the values
        themselves stand in the cells.
    """
    chosen = evenly(0, audit.score.batch_size - 1, RECORDS)
    names = _feature_names(audit, dataset)
    longest = max((len(name) for name in names), default=0)
    figure = new_figure(WIDTH, TOP + STEP * len(chosen) + 0.15 + 0.062 * longest)
    heading(figure, verdict(audit), which(audit, len(chosen)))
    places = found_at(audit)
    true = audit.truth.double().flatten(1).numpy()
    found = audit.recovery.samples.double().flatten(1).numpy()
    low, high = true.min(axis=0), true.max(axis=0)
    width = WIDTH - LEFT - RIGHT
    for row, sample in enumerate(chosen):
        top = TOP + STEP * row
        above = place_axes(figure, LEFT, top, width, STRIP)
        _draw_strip(above, true[sample], low, high)
        _note(above, true_class(audit, dataset, sample), "black")
        below = place_axes(figure, LEFT, top + STRIP, width, STRIP)
        place = int(places[sample])
        if place < 0:
            hatched(below)
            below.set_xlim(above.get_xlim())
        else:
            _draw_strip(below, found[place], low, high)
            error = scientific(float(np.abs(found[place] - true[sample]).max()))
            _note(below, f"error {error}", GREY, right=True)
        _note(below, *fate(audit, dataset, place))
        if row == len(chosen) - 1 and names:
            below.set_xticks(range(len(names)), names, rotation=90, size=7, parse_math=False)
    return figure


def _feature_names(audit: Audit, dataset: Dataset) -> list[str]:
    number = audit.truth.flatten(1).shape[1]
    if number > NAMES:
        return []
    given = dataset.feature_names if audit.recovery.space == "input" else None
    names = given or tuple(str(feature) for feature in range(number))
    return [printable(name, most=24) for name in names]


def _draw_strip(
    axes: Axes, values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> None:
    shares = (values - low) / np.where(high > low, high - low, 1.0)
    axes.imshow(shares[None], cmap="cividis", vmin=0, vmax=1, aspect="auto")
    bare(axes)
    texts = [f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}" for value in values.tolist()]
    if len(texts) * max(map(len, texts)) > LETTERS:
        return
    for column, (text, share) in enumerate(zip(texts, shares.tolist(), strict=True)):
        colour = "black" if share > 0.5 else "white"
        axes.text(column, 0, text, size=6.5, color=colour, ha="center", va="center")


def _note(axes: Axes, text: str, colour: str, *, right: bool = False) -> None:
    """Text beside a strip."""
    axes.text(
        1.006 if right else -0.006,
        0.5,
        text,
        size=8,
        color=colour,
        ha="left" if right else "right",
        va="center",
        transform=axes.transAxes,
        parse_math=False,
    )
