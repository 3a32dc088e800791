"""Nothing is clipped, and no text lies on another; in all figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from gradpeel.datasets import Dataset
from gradpeel.paper.figures import (
    Drawn,
    board,
    firing_patterns,
    firing_probabilities,
    means,
    peeling_graph,
    seeds,
    teaser,
)
from gradpeel.paper.figures.frame import COLUMN, PAGE

NOTES = {"imagenet": "200 classes instead of 1000, and many more words that need a second line"}
STANDARD = ("imagenet", "cifar10", "cifar100", "fashion_mnist", "emnist", "harus", "mnist", "svhn")

DRAWN: dict[str, Callable[[Dataset], Drawn]] = {
    "teaser": lambda data: teaser(data, batch_size=16, neurons=200, notes=NOTES),
    "peeling_graph": lambda data: peeling_graph(data, notes=NOTES),
    "firing_patterns": lambda data: firing_patterns(data, notes=NOTES),
    "firing_probabilities": lambda data: firing_probabilities(
        (dataclasses.replace(data, name=name) for name in STANDARD),
        batch_size=200,
        neurons=100,
        notes=NOTES,
    ),
    "board": lambda data: board(data, batch_size=100, neurons=1000, notes=NOTES),
    "board in one row": lambda data: board(data, batch_size=40, neurons=200, notes=NOTES),
    "seeds": lambda data: seeds(data, batch_size=200, neurons=300, notes=NOTES),
    "means": lambda data: means(data, batch_size=50, notes=NOTES),
}


def texts(figure: Figure) -> Iterator[Text]:
    """What can be read in a figure."""
    figure.canvas.draw()
    unseen = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not axes.axison or not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen:
            yield text


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_text_is_neither_clipped_nor_hidden_nor_tiny(name: str, digits: Dataset) -> None:
    figure = DRAWN[name](dataclasses.replace(digits, name="imagenet")).figure
    assert figure.get_figwidth() in {COLUMN, PAGE}
    assert figure.get_figheight() < 9.5
    width, height = figure.get_size_inches() * figure.dpi
    boxes = {text: text.get_window_extent() for text in texts(figure)}
    assert len(boxes) > 5
    for text, box in boxes.items():
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, f"{text.get_text()!r} is clipped"
        assert float(text.get_fontsize()) >= 6.5, f"{text.get_text()!r} is tiny"
    for (one, first), (other, second) in combinations(boxes.items(), 2):
        # A hair's breadth: boxes include the room around letters.
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        down = min(first.y1, second.y1) - max(first.y0, second.y0)
        overlap = across > 1 and down > 1
        assert not overlap, f"{one.get_text()!r} lies on {other.get_text()!r}"
