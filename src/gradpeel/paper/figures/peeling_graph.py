"""Peeling a gradient beside peeling an LT code (paper, section "Luby Transform Codes").

Both panels show one graph: the activation grid of a small network on real samples. A check bit is
the XOR of message bits as a neuron's gradient is a weighted sum of samples; a check that is down to
one bit gives it away as a neuron that is down to one sample does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradpeel.datasets import Dataset
from gradpeel.paper.figures.frame import LETTERS, PAGE, Drawn, framed
from gradpeel.paper.figures.graph import PeelingGraph, small_cascade
from gradpeel.paper.figures.graph_panel import (
    ABOVE,
    GRADIENT,
    LT_CODE,
    PANEL,
    ROW,
    SIDE,
    GraphPanel,
)
from gradpeel.paper.figures.runs import title_of, with_notes
from gradpeel.reporting.samples import draw_picture
from gradpeel.reporting.style import BLUE, place_axes
from gradpeel.reporting.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["peeling_graph"]

LEGEND = 0.6
"""Inches: the legend."""
OPERATIONS = """\
Gradient: what neuron j sends, gⱼ, is a weighted sum of the samples that fire it (ordinary \
addition); a sample is peeled by subtracting its part.
LT code: a check bit tⱼ is the XOR (⊕) of its message bits; a bit is peeled by XORing it in \
once more."""


def peeling_graph(
    dataset: Dataset,
    *,
    batch_size: int = 5,
    neurons: int = 7,
    rounds: int = 3,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw the peeling graph of a small run, and the same graph as that of an LT code.

    Args:
        dataset: pictures; samples that are none are drawn as circles.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        rounds: length of the cascade, at most five.
        seed: where the search for such a run begins, see `small_cascade`.
        notes: how data differs from the paper's, by its name; ends the caption.
    """
    found = small_cascade(dataset, batch_size=batch_size, neurons=neurons, rounds=rounds, seed=seed)
    graph = PeelingGraph.of(found)
    removed = found.recovery.by_round
    caption = with_notes(
        f"{title_of(dataset.name)}: the first {counted(batch_size, 'sample')} and all "
        f"{counted(neurons, 'neuron')} of an untouched network, seed {found.seed}: the first seed "
        f"from {seed} on whose cascade takes {rounds} rounds on few edges. Both panels show its "
        f"activation grid, {int(graph.grid.sum())} edges.",
        notes,
        dataset.name,
    )
    height = ROW * max(neurons, batch_size)
    figure, top = framed(
        PAGE, ABOVE + height + LEGEND, "Peeling a gradient is peeling an LT code", caption
    )
    bounds = float(found.x.min()), float(found.x.max())
    for column, words in enumerate((GRADIENT, LT_CODE)):
        axes = place_axes(figure, column * PANEL, top, PANEL, ABOVE + height)
        panel = GraphPanel(axes, graph, words, height)
        panel.draw_edges()
        panel.draw_neurons()
        if pictured := words is GRADIENT and dataset.is_image:
            pictures = found.x.double().numpy()
            for sample, (left, middle) in enumerate(panel.samples()):
                picture = place_axes(
                    figure,
                    column * PANEL + left - SIDE / 2,
                    top + ABOVE + height - middle - SIDE / 2,
                    SIDE,
                    SIDE,
                )
                draw_picture(picture, pictures[sample], bounds)
        panel.draw_samples(pictured=pictured)
    _draw_legend(figure)
    numbers: dict[str, object] = {
        "seed": found.seed,
        "grid": graph.grid.astype(int).tolist(),
        "edges": int(graph.grid.sum()),
        "rounds": graph.rounds.tolist(),
        "removed_by_round": removed,
        "read_edges": np.argwhere(graph.reads).tolist(),
        "max_abs_error": found.score.max_abs_error,
    }
    return Drawn(figure, caption, numbers)


def _draw_legend(figure: Figure) -> None:
    """What the marks mean, then the one operation in which the two differ."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    height = figure.get_figheight()
    marks = {
        "isolated neuron / check of degree 1, in the colour of its round": Line2D(
            [], [], linestyle="", marker="s", markersize=8, color=BLUE
        ),
        "its last edge: read the sample / bit": Line2D([], [], linewidth=1.8, color=BLUE),
        "edge peeled earlier": Line2D([], [], linewidth=0.9, linestyle=(0, (3, 2)), color=BLUE),
    }
    figure.legend(
        list(marks.values()),
        list(marks),
        loc="upper center",
        bbox_to_anchor=(0.5, LEGEND / height),
        ncols=len(marks),
        fontsize=LETTERS,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.6,
    )
    below = (LEGEND - 0.24) / height
    figure.text(0.5, below, OPERATIONS, size=LETTERS, ha="center", va="top", linespacing=1.4)
