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


def means(
    dataset: Dataset, *, batch_size: int = 1024, notes: Mapping[str, str] | None = None
) -> Drawn:
    """Draw the mean of a batch, and how each channel of it departs from its own mean.

    The departures are small, so they are amplified, all by the same factor: the one that takes the
    largest from mid-grey to the end of the scale.

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
    # A mean without any structure needs no factor.
    factor = 0.5 / largest if largest else 1.0
    names = CHANNELS if len(levels) == 3 else ("grey",)
    caption = with_notes(
        f"{title_of(dataset.name)}, mean of a batch of {batch_size}. Left: the mean picture. "
        f"Right: departure of each channel from its own mean ({_levels(levels.tolist())}), "
        f"amplified ×{factor:.1f}; the largest is {largest:.3f} of the data's range.",
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
        image = axes.imshow(
            0.5 + factor * departure, cmap="cividis", vmin=0, vmax=1, interpolation="nearest"
        )
        axes.set_title(f"{name} ×{factor:.1f}", size=LETTERS, pad=3)
        bare(axes)
    width = lefts[-1] + side - lefts[1]
    bar = place_axes(figure, lefts[1], top + ABOVE + side + 0.06, width, BAR)
    _draw_scale(bar, image, largest)
    numbers: dict[str, object] = {
        "batch_size": batch_size,
        "channel_means": levels.tolist(),
        "largest_departure": largest,
        "amplification": factor,
    }
    return Drawn(figure, caption, numbers)


def _levels(levels: list[float]) -> str:
    return ", ".join(f"{level:.3f}" for level in levels)


def _draw_scale(axes: Axes, image: AxesImage, largest: float) -> None:
    """A colour bar that shows the departures as they are, not as they are amplified."""
    bar = axes.figure.colorbar(image, cax=axes, orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=[f"−{largest:.2f}", "0", f"+{largest:.2f}"])
    bar.ax.tick_params(labelsize=LETTERS, length=2, pad=2, labelcolor=GREY)
    bar.outline.set_linewidth(0.4)
    # So that the numbers at the ends do not stick out.
    first, _, last = bar.ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
