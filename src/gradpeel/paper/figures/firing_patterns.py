"""Which neurons fire on which samples, mirrored or not (paper, section "Trap Weights")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradpeel.datasets import Dataset
from gradpeel.designs import Construction, TrapWeights
from gradpeel.exposure import Exposure
from gradpeel.paper.figures.frame import COLUMN, LETTERS, Drawn, framed
from gradpeel.paper.figures.runs import exposed, title_of, with_notes
from gradpeel.reporting.board import grid_picture
from gradpeel.reporting.style import GREY, VERMILLION, bare, place_axes
from gradpeel.reporting.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["firing_patterns"]

SPARSE = 3
"""A neuron that so many samples fire, or fewer, is sparse; none at all make it silent."""
CONSTRUCTIONS: tuple[Construction, Construction] = ("mirrored", "independent")
LEFT, GAP, ABOVE, HEIGHT, BELOW = 0.24, 0.16, 0.2, 2.3, 0.5
"""Inches: margins, between the panels, height of a panel, for the text above and below it."""


def firing_patterns(
    dataset: Dataset,
    *,
    batch_size: int = 100,
    neurons: int = 1000,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw the activation grids of mirrored and of independent weights at s = 1.

    Rows are sorted by degree in both, so that sparse ones stand together; columns are sorted by
    atypicality.

    Args:
        dataset: what the batch is drawn from.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        seed: seeds the network.
        notes: how data differs from the paper's, by its name; ends the caption.
    """
    grids = {
        construction: exposed(
            dataset,
            TrapWeights(scale=1.0, construction=construction),
            batch_size=batch_size,
            neurons=neurons,
            seed=seed,
        )
        for construction in CONSTRUCTIONS
    }
    counts: dict[str, dict[str, int]] = {
        construction: _counts(found) for construction, found in grids.items()
    }
    mirrored, independent = (counts[construction]["sparse"] for construction in CONSTRUCTIONS)
    caption = with_notes(
        f"{title_of(dataset.name)}, s = 1, N = {neurons}, B = {batch_size}. Dark: the neuron fires "
        f"on the sample. Neurons of degree 1 to {SPARSE}, which seed the cascade: {mirrored} under "
        f"mirrored weights, {independent} under independent ones (marked).",
        notes,
        dataset.name,
    )
    figure, top = framed(
        COLUMN, ABOVE + HEIGHT + BELOW, "Which neurons fire on which samples", caption
    )
    width = (COLUMN - LEFT - GAP - 0.12) / 2
    for column, (construction, found) in enumerate(grids.items()):
        left = LEFT + column * (width + GAP)
        axes = place_axes(figure, left, top + ABOVE, width, HEIGHT)
        _draw(axes, found)
        axes.set_title(f"{construction} weights", size=LETTERS + 1, pad=3)
        said = counts[construction]
        below = f"degree 1 to {SPARSE}: {counted(said['sparse'], 'neuron')}"
        axes.set_xlabel(
            f"{counted(batch_size, 'sample')}\n{below}\nsilent: {said['silent']}, "
            f"fire on all: {said['on_all']}",
            size=LETTERS,
            labelpad=3,
        )
    figure.axes[0].set_ylabel(f"{neurons} neurons, densest on top", size=LETTERS, color=GREY)
    numbers: dict[str, object] = {"batch_size": batch_size, "neurons": neurons, **counts}
    return Drawn(figure, caption, numbers)


def _counts(found: Exposure) -> dict[str, int]:
    degrees = found.degrees.numpy()
    return {
        "sparse": int(((degrees > 0) & (degrees <= SPARSE)).sum()),
        "silent": int((degrees == 0).sum()),
        "on_all": int((degrees == found.grid.shape[1]).sum()),
        "least_degree": int(degrees.min()),
        "largest_degree": int(degrees.max()),
    }


def _draw(axes: Axes, found: Exposure) -> None:
    degrees = found.degrees.numpy()
    rows = np.argsort(-degrees, kind="stable")
    columns = np.argsort(found.atypicality.numpy(), kind="stable")
    neurons, batch_size = found.grid.shape
    axes.imshow(
        grid_picture(found.grid.numpy()[rows][:, columns]),
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, batch_size - 0.5, neurons - 0.5, -0.5),
    )
    bare(axes)
    sparse = np.flatnonzero((degrees[rows] > 0) & (degrees[rows] <= SPARSE))
    if len(sparse):
        # Beside the panel, so that it hides no mark.
        beside = (batch_size - 0.5) + batch_size * 0.03
        ends = [sparse[0] - 0.5, sparse[-1] + 0.5]
        axes.plot(
            [beside, beside], ends, color=VERMILLION, lw=3, solid_capstyle="butt", clip_on=False
        )
        axes.set(xlim=(-0.5, batch_size - 0.5), ylim=(neurons - 0.5, -0.5))
