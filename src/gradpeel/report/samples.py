"""Originals above recovered samples: pictures where a sample can be drawn, records otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.report.captions import fate, true_class, verdict, which
from gradpeel.report.matching import evenly, found_at
from gradpeel.report.records import draw_records
from gradpeel.report.style import GREY, bare, hatched, heading, new_figure, place_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["originals_and_recovered"]

COLUMNS, PAIRS = 16, 2
LEFT, TOP, SIDE, GAP, PAIR = 0.35, 0.85, 0.7, 0.06, 1.9
"""Inches: margins, side of a picture, between two pictures, from one pair of rows to the next."""


def originals_and_recovered(audit: Audit, dataset: Dataset) -> Figure:
    """Draw samples of the batch, each above what was read out of the gradient.

    They are evenly spaced over the batch, not chosen by how well they came out.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from; says what labels and features are called.

    Returns:
        Two axes a sample: the original with its label, and what was recovered with its round, or a
        hatched frame. Data that is not pictures comes as strips, see `draw_records`.

    Example:
        >>> import numpy as np
        >>> from gradpeel import audit
        >>> from gradpeel.datasets import draw_batch, load
        >>> from gradpeel.networks import mlp
        >>> data = load("digits")
        >>> batch = draw_batch(data, 8)
        >>> model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
        >>> figure = originals_and_recovered(audit(model, batch.x, batch.y), data)
        >>> len(figure.axes)
        16
    """
    return _draw_pictures(audit, dataset) if dataset.is_image else draw_records(audit, dataset)


def _draw_pictures(audit: Audit, dataset: Dataset) -> Figure:
    chosen = evenly(0, audit.score.batch_size - 1, COLUMNS * PAIRS)
    pairs = 1 if len(chosen) <= COLUMNS else PAIRS
    columns = -(-len(chosen) // pairs)
    figure = new_figure(LEFT + (SIDE + GAP) * max(columns, 8) + 0.1, TOP + PAIR * pairs - 0.15)
    heading(figure, verdict(audit), which(audit, len(chosen)))
    places = found_at(audit)
    for number, sample in enumerate(chosen):
        pair, column = divmod(number, columns)
        left, top = LEFT + (SIDE + GAP) * column, TOP + PAIR * pair
        above = place_axes(figure, left, top, SIDE, SIDE)
        _draw_picture(above, audit.x[sample].double().numpy(), audit)
        label = true_class(audit, dataset, sample)
        above.set_title(label, size=7, pad=3, parse_math=False)
        below = place_axes(figure, left, top + SIDE + GAP, SIDE, SIDE)
        place = int(places[sample])
        if place < 0:
            hatched(below)
        else:
            _draw_picture(below, audit.recovery.samples[place].numpy(), audit)
        said, colour = fate(audit, dataset, place)
        below.set_xlabel(said, size=7, labelpad=3, color=colour, parse_math=False)
        if column == 0:
            above.set_ylabel("original", size=9, color=GREY)
            below.set_ylabel("rebuilt", size=9, color=GREY)
    return figure


def _draw_picture(axes: Axes, picture: NDArray[np.float64], audit: Audit) -> None:
    low, high = float(audit.x.min()), float(audit.x.max())
    if picture.ndim == 3 and picture.shape[2] == 3:
        # matplotlib draws colours as they are and wants them in [0, 1].
        picture = np.clip((picture - low) / ((high - low) or 1.0), 0, 1)
    axes.imshow(picture, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    bare(axes)
