"""Originals above recovered samples: pictures where a sample can be drawn, records otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.reporting.captions import fate, true_class, verdict, which
from gradpeel.reporting.matching import evenly, found_at
from gradpeel.reporting.records import draw_records
from gradpeel.reporting.style import GREY, bare, hatched, heading, new_figure, place_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PairLayout", "draw_pairs", "draw_picture", "originals_and_recovered"]

COLUMNS, PAIRS = 16, 2


@dataclass(frozen=True)
class PairLayout:
    """Where originals and recovered samples stand; everything in inches but the letters.

    Attributes:
        left: left of the first picture.
        top: above the first picture.
        side: of a picture.
        gap: between two pictures.
        pair: from one pair of rows to the next.
        letters: size of what stands above and below, in points.
        name: letters that a class name may have.
    """

    left: float = 0.35
    top: float = 0.85
    side: float = 0.7
    gap: float = 0.06
    pair: float = 1.9
    letters: float = 7
    name: int = 14


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
    # Features of pictures are not pictures.
    is_image = dataset.is_image and audit.recovery.space == "input"
    return _draw_pictures(audit, dataset) if is_image else draw_records(audit, dataset)


def _draw_pictures(audit: Audit, dataset: Dataset) -> Figure:
    chosen = evenly(0, audit.score.batch_size - 1, COLUMNS * PAIRS)
    pairs = 1 if len(chosen) <= COLUMNS else PAIRS
    columns = -(-len(chosen) // pairs)
    at = PairLayout()
    width = at.left + (at.side + at.gap) * max(columns, 8) + 0.1
    figure = new_figure(width, at.top + at.pair * pairs - 0.15)
    heading(figure, verdict(audit), which(audit, len(chosen)))
    draw_pairs(figure, audit, dataset, chosen, columns=columns, layout=at)
    return figure


def draw_pairs(
    figure: Figure,
    audit: Audit,
    dataset: Dataset,
    chosen: Sequence[int],
    *,
    columns: int,
    layout: PairLayout,
) -> None:
    """Draw samples of the batch, each above what was recovered of it: two axes a sample.

    Args:
        figure: where.
        audit: the simulated round.
        dataset: where its batch comes from; samples must be pictures.
        chosen: the samples, by their place in the batch.
        columns: pairs side by side.
        layout: where they stand.
    """
    places = found_at(audit)
    side, size = layout.side, layout.letters
    for number, sample in enumerate(chosen):
        pair, column = divmod(number, columns)
        left, top = layout.left + (side + layout.gap) * column, layout.top + layout.pair * pair
        above = place_axes(figure, left, top, side, side)
        draw_picture(above, audit.truth[sample].double().numpy(), _range(audit))
        label = true_class(audit, dataset, sample, most=layout.name)
        above.set_title(label, size=size, pad=3, parse_math=False)
        below = place_axes(figure, left, top + side + layout.gap, side, side)
        place = int(places[sample])
        if place < 0:
            hatched(below)
        else:
            draw_picture(below, audit.recovery.samples[place].numpy(), _range(audit))
        said, colour = fate(audit, dataset, place)
        below.set_xlabel(said, size=size, labelpad=3, color=colour, parse_math=False)
        if column == 0:
            above.set_ylabel("original", size=size + 2, color=GREY)
            below.set_ylabel("recovered", size=size + 2, color=GREY)


def _range(audit: Audit) -> tuple[float, float]:
    return float(audit.truth.min()), float(audit.truth.max())


def draw_picture(axes: Axes, picture: NDArray[np.float64], bounds: tuple[float, float]) -> None:
    """Draw a sample that is a picture, in a thin frame.

    Args:
        axes: where.
        picture: (H, W), or with one or three colours in the last or in the first place.
        bounds: what is black and what is white.
    """
    low, high = bounds
    if picture.ndim == 3 and picture.shape[2] not in (1, 3):
        picture = np.moveaxis(picture, 0, 2)
    if picture.ndim == 3 and picture.shape[2] == 3:
        # matplotlib draws colours as they are and wants them in [0, 1].
        picture = np.clip((picture - low) / ((high - low) or 1.0), 0, 1)
    axes.imshow(picture, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    bare(axes)
