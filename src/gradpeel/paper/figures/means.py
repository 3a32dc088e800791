"""The mean picture and how flat it is (paper, section "Which Samples Are Most at Risk")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradpeel.datasets import Dataset, draw_batch
from gradpeel.paper.figures.frame import COLUMN, LETTERS, Drawn, framed
from gradpeel.paper.figures.runs import check_pictures, title_of, with_notes
from gradpeel.reporting.samples import draw_picture
from gradpeel.reporting.style import GREY, bare, place_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = ["means"]

LEFT, GAP, ABOVE = 0.06, 0.07, 0.2
BAR, TICKS = 0.07, 0.34
"""Inches: margins, above the pictures; the colour bar, and for the numbers below it."""
CHANNELS = ("red", "green", "blue")
SIGNED = "RdBu_r"
"""A diverging map: white is zero."""


def means(
    dataset: Dataset, *, batch_size: int = 1024, notes: Mapping[str, str] | None = None
) -> Drawn:
    """Draw the mean of a batch, and how each channel of it departs from its own mean.

    The departures are signed and small: a diverging scale, the same for all channels, runs from
    the largest below the mean to the largest above it.

    Args:
        dataset: pictures; the paper shows CIFAR-10.
        batch_size: samples in the batch; the paper's largest.
        notes: how data differs from the paper's, by its name; ends the caption.

    Raises:
        InputError: the samples are not pictures, or too few.
    """
    check_pictures(dataset)
    x = draw_batch(dataset, batch_size).x.numpy()
    low, high = dataset.data_range or (float(x.min()), float(x.max()))
    mean = x.mean(axis=0)
    channels = np.atleast_3d(mean)
    levels = channels.mean(axis=(0, 1))
    departures = (channels - levels) / (high - low)
    largest = float(np.abs(departures).max())
    # A mean without any structure needs no scale of its own.
    end = largest or 0.5
    names = CHANNELS if len(levels) == 3 else ("grey",)
    caption = with_notes(
        f"{title_of(dataset.name)}, mean of a batch of {batch_size}. Left: the mean picture. "
        f"Right: departure of each channel from its own mean ({_levels(levels.tolist())}), "
        f"red above and blue below; the largest is {largest:.3f} of the data's range.",
        notes,
        dataset.name,
    )
    side = (COLUMN - 2 * LEFT - GAP * 3) / 4
    figure, top = framed(
        COLUMN, ABOVE + side + BAR + TICKS, "The mean picture, and how far it is from flat", caption
    )
    lefts = [LEFT + number * (side + GAP) for number in range(1 + len(names))]
    axes = place_axes(figure, lefts[0], top + ABOVE, side, side)
    draw_picture(axes, mean, (low, high))
    axes.set_title("mean", size=LETTERS, pad=3)
    for left, name, departure in zip(lefts[1:], names, np.moveaxis(departures, 2, 0), strict=True):
        axes = place_axes(figure, left, top + ABOVE, side, side)
        image = axes.imshow(departure, cmap=SIGNED, vmin=-end, vmax=end, interpolation="nearest")
        axes.set_title(name, size=LETTERS, pad=3)
        bare(axes)
    width = lefts[-1] + side - lefts[1]
    bar = place_axes(figure, lefts[1], top + ABOVE + side + 0.06, width, BAR)
    _draw_scale(bar, image, end)
    numbers: dict[str, object] = {
        "batch_size": batch_size,
        "channel_means": levels.tolist(),
        "largest_departure": largest,
        # What the paper multiplies departures by: the largest then spans half of the range.
        "amplification": 0.5 / end,
    }
    return Drawn(figure, caption, numbers)


def _levels(levels: list[float]) -> str:
    return ", ".join(f"{level:.3f}" for level in levels)


def _draw_scale(axes: Axes, image: AxesImage, end: float) -> None:
    """A colour bar of the departures."""
    bar = axes.figure.colorbar(image, cax=axes, orientation="horizontal")
    bar.set_ticks([-end, 0, end], labels=[f"−{end:.2f}", "0", f"+{end:.2f}"])
    bar.ax.tick_params(labelsize=LETTERS, length=2, pad=2, labelcolor=GREY)
    bar.outline.set_linewidth(0.4)
    # So that the numbers at the ends do not stick out.
    first, _, last = bar.ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
