"""How often neurons fire, passive and mirrored (paper, section "Trap Weights").

Where the features of the mean sample are all about the same, mirroring makes every neuron fire on
about half of the samples, and nothing is left for a cascade to begin with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets import Dataset
from gradpeel.designs import Design, Passive, TrapWeights
from gradpeel.paper.figures.frame import COLUMN, LETTERS, Drawn, framed
from gradpeel.paper.figures.runs import exposed, title_of, with_notes
from gradpeel.reporting.style import BLUE, GREY, VERMILLION, place_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["firing_probabilities"]

DESIGNS: dict[str, tuple[Design, str]] = {
    "passive": (Passive("gaussian"), BLUE),
    "mirrored": (TrapWeights(scale=1.0, construction="mirrored"), VERMILLION),
}
BINS = np.linspace(0, 1, 21)
ABOVE_PANEL = 1.045
"""Where the titles of panels stand, as a share of their height."""
MIDDLE = 0.4, 0.6
"""The share of the p_j in here is among the numbers."""
COLUMNS = 2
LEFT, GAP, LEGEND, ABOVE, HEIGHT, BELOW = 0.42, 0.2, 0.16, 0.19, 0.6, 0.36
"""Inches: left margin, between panels, the legend, a panel's title, its height, below them all."""


def firing_probabilities(
    datasets: Iterable[Dataset],
    *,
    batch_size: int = 1000,
    neurons: int = 1000,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw histograms of the firing probabilities p_j, a panel for each data set, on equal axes.

    Args:
        datasets: they are taken one after the other, so that an iterator need hold only one.
        batch_size: samples that p_j is taken over.
        neurons: number of p_j in a histogram.
        seed: seeds the networks.
        notes: how data differs from the paper's, by its name; ends the caption.
    """
    measured: dict[str, dict[str, NDArray[np.float64]]] = {}
    for dataset in datasets:
        measured[dataset.name] = {
            name: exposed(
                dataset, design, batch_size=batch_size, neurons=neurons, seed=seed
            ).firing_probabilities.numpy()
            for name, (design, _) in DESIGNS.items()
        }
    caption = with_notes(
        f"Firing probabilities pⱼ of {neurons} neurons over {batch_size} samples, under passive "
        "and mirrored weights (s = 1); σ: their standard deviations, in this order.",
        notes,
        *measured,
    )
    rows = -(-len(measured) // COLUMNS)
    block = ABOVE + HEIGHT
    figure, top = framed(
        COLUMN,
        LEGEND + rows * block + BELOW,
        "Firing probabilities, passive and mirrored",
        caption,
    )
    _draw_legend(figure, top)
    width = (COLUMN - LEFT - GAP * (COLUMNS - 1) - 0.08) / COLUMNS
    for place, (name, of_design) in enumerate(measured.items()):
        row, column = divmod(place, COLUMNS)
        left = LEFT + column * (width + GAP)
        axes = place_axes(figure, left, top + LEGEND + row * block + ABOVE, width, HEIGHT)
        _draw(axes, of_design)
        axes.set_title(title_of(name), size=7.5, y=ABOVE_PANEL, pad=0, loc="left", parse_math=False)
        last = place + COLUMNS >= len(measured)
        axes.tick_params(labelbottom=last, labelleft=column == 0)
        if last:
            axes.set_xlabel("firing probability pⱼ", size=LETTERS, labelpad=2)
        if column == 0:
            axes.set_ylabel("neurons", size=LETTERS, labelpad=2)
    highest = max((axes.get_ylim()[1] for axes in figure.axes), default=1.0)
    for axes in figure.axes:
        axes.set_ylim(0, highest)
    numbers: dict[str, object] = {
        "batch_size": batch_size,
        "neurons": neurons,
        "histogram_edges": BINS.round(2).tolist(),
        "data": {
            name: {design: _numbers(p) for design, p in of_design.items()}
            for name, of_design in measured.items()
        },
    }
    return Drawn(figure, caption, numbers)


def _draw(axes: Axes, of_design: dict[str, NDArray[np.float64]]) -> None:
    # The deviations stand above the panel, right to left, where no histogram can reach them.
    place = 1.0
    for name, probabilities in reversed(of_design.items()):
        colour = DESIGNS[name][1]
        counts = _histogram(probabilities)
        axes.stairs(counts, BINS, fill=True, color=colour, alpha=0.35)
        axes.stairs(counts, BINS, color=colour, lw=0.9, label=name)
        said = f"{probabilities.std():.2f}"
        _note(axes, place, said, colour)
        place -= 0.19
    _note(axes, place, "σ", GREY)
    axes.set(xlim=(0, 1))
    axes.set_xticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    axes.tick_params(labelsize=LETTERS, length=2, pad=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, edgecolor=GREY)


def _note(axes: Axes, place: float, text: str, colour: str) -> None:
    axes.text(
        place,
        ABOVE_PANEL,
        text,
        size=LETTERS,
        color=colour,
        ha="right",
        va="baseline",
        transform=axes.transAxes,
    )


def _draw_legend(figure: Figure, top: float) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure.legend(
        [Patch(facecolor=(colour, 0.35), edgecolor=colour) for _, colour in DESIGNS.values()],
        list(DESIGNS),
        loc="center",
        bbox_to_anchor=(0.5, 1 - (top + LEGEND / 2) / figure.get_figheight()),
        ncols=len(DESIGNS),
        fontsize=LETTERS,
        frameon=False,
        handlelength=1.4,
    )


def _histogram(probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    # p_j is a multiple of 1 / B: without the nudge a bin's edge would fall to rounding.
    return np.histogram(probabilities + 1e-9, np.append(BINS[:-1], 1 + 1e-6))[0]


def _numbers(probabilities: NDArray[np.float64]) -> dict[str, object]:
    low, high = MIDDLE
    return {
        "mean": float(probabilities.mean()),
        "deviation": float(probabilities.std()),
        "share_from_0.4_to_0.6": float(((probabilities >= low) & (probabilities <= high)).mean()),
        "silent": int((probabilities == 0).sum()),
        "histogram": _histogram(probabilities).tolist(),
    }
