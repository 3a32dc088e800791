"""One panel of the peeling graph: parts on the left, checks on the right, edges between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpeel.paper.figures.frame import LETTERS, PAGE
from gradpeel.paper.figures.graph import PeelingGraph
from gradpeel.reporting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ABOVE", "GRADIENT", "LT_CODE", "PANEL", "ROW", "SIDE", "GraphPanel"]

COLOURS = (VERMILLION, BLUE, GREEN, PURPLE, ORANGE)
"""By round; the number always stands beside the colour."""
ROW, PANEL, ABOVE = 0.42, PAGE / 2, 0.3
"""Inches: from neuron to neuron, the width of a panel, for its title."""
NAME, SAMPLE, NEURON, TEXT = 0.28, 0.75, 2.0, 2.2
"""Inches from a panel's left edge: centres of names, samples and neurons; start of equations."""
SIDE, BOX = 0.38, 0.25
"""Inches: side of a picture, and of a neuron."""


@dataclass(frozen=True)
class _Words:
    """How one of the two panels names things."""

    title: str
    part: str
    check: str
    joined: str
    gives: str


GRADIENT = _Words("Gradient: samples and neurons", "x", "g", " + ", "isolates")
LT_CODE = _Words("LT code: message bits and check bits", "m", "t", " ⊕ ", "is down to")


class GraphPanel:
    """One of the two graphs; the axes' units are inches, from the lower left."""

    def __init__(self, axes: Axes, graph: PeelingGraph, words: _Words, height: float) -> None:
        self._axes, self._graph, self._words = axes, graph, words
        axes.set(xlim=(0, PANEL), ylim=(0, ABOVE + height))
        axes.axis("off")
        axes.text(
            PANEL / 2, height + 0.16, words.title, size=8.5, weight="bold", ha="center", va="center"
        )
        neurons, batch_size = graph.grid.shape
        # Those that fall, or are read, first stand on top: the cascade runs downwards.
        read = np.where(graph.read_rounds > 0, graph.read_rounds, neurons + batch_size)
        self._neuron_y = _places(np.lexsort([graph.grid.sum(axis=1), read]), height)
        self._sample_y = _places(np.argsort(graph.rounds, kind="stable"), height)

    def samples(self) -> list[tuple[float, float]]:
        """Where the centres of the samples are."""
        return [(SAMPLE, y) for y in self._sample_y.tolist()]

    def draw_edges(self) -> None:
        """Solid where a neuron is read, dashed where a sample is peeled off it."""
        for neuron, sample in np.argwhere(self._graph.grid).tolist():
            read = self._graph.reads[neuron, sample]
            self._axes.plot(
                [SAMPLE, NEURON],
                [self._sample_y[sample], self._neuron_y[neuron]],
                color=_colour(int(self._graph.rounds[sample])),
                lw=1.8 if read else 0.9,
                linestyle="-" if read else (0, (3, 2)),
                zorder=2 if read else 1,
                gid=f"{self._words.part}{sample + 1}-{self._words.check}{neuron + 1}",
            )

    def draw_neurons(self) -> None:
        """Boxes with their equations; those that come to be isolated are filled."""
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        for neuron, y in enumerate(self._neuron_y.tolist()):
            number = int(self._graph.read_rounds[neuron])
            colour = _colour(number)
            self._axes.add_patch(
                Rectangle(
                    (NEURON - BOX / 2, y - BOX / 2),
                    BOX,
                    BOX,
                    facecolor=colour if number else "white",
                    edgecolor=colour,
                    linewidth=1.2,
                    zorder=3,
                )
            )
            name = f"{self._words.check}{_subscript(neuron)}"
            self._text(NEURON, y, name, size=7.5, color="white" if number else GREY, bold=True)
            fires = np.flatnonzero(self._graph.grid[neuron]).tolist()
            equation = self._words.joined.join(map(self._part, fires))
            said = "not needed"
            if number:
                (sample,) = np.flatnonzero(self._graph.reads[neuron])
                said = f"round {number}: {self._words.gives} {self._part(int(sample))}"
            self._text(TEXT, y + 0.07, equation, size=LETTERS, left=True)
            self._text(TEXT, y - 0.07, said, size=6.5, color=colour, left=True)

    def draw_samples(self, *, pictured: bool) -> None:
        """Name each and the round it falls in; without a picture of it, draw a circle."""
        from matplotlib.patches import Circle  # noqa: PLC0415

        for sample, y in enumerate(self._sample_y.tolist()):
            number = int(self._graph.rounds[sample])
            colour, fate = _colour(number), f"round {number}"
            if pictured:
                self._text(NAME, y + 0.08, self._part(sample), size=8, bold=True)
                self._text(NAME, y - 0.08, fate, size=6.5, color=colour)
            else:
                circle = Circle((SAMPLE, y), BOX / 2 + 0.02, facecolor=colour, zorder=3)
                self._axes.add_patch(circle)
                self._text(SAMPLE, y, self._part(sample), size=8, color="white", bold=True)
                self._text(NAME + 0.08, y, fate, size=6.5, color=colour)

    def _part(self, sample: int) -> str:
        return f"{self._words.part}{_subscript(sample)}"

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float,
        color: str = "black",
        bold: bool = False,
        left: bool = False,
    ) -> None:
        self._axes.text(
            x,
            y,
            text,
            size=size,
            color=color,
            weight="bold" if bold else "normal",
            ha="left" if left else "center",
            va="center",
            zorder=4,
        )


def _places(order: NDArray[np.int64], height: float) -> NDArray[np.float64]:
    """Heights of things that stand in this order from the top, evenly spaced."""
    step = height / len(order)
    places = np.empty(len(order))
    places[order] = height - step * (np.arange(len(order)) + 0.5)
    return places


def _colour(number: int) -> str:
    return COLOURS[(number - 1) % len(COLOURS)] if number else GREY


def _subscript(index: int) -> str:
    return str(index + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
