"""The paper's seven figures, drawn from our own runs.

Every figure is one function from data sets to a drawing, a caption and the numbers behind it;
`draw_figures` writes them all. Nothing is copied from the paper: the same seed gives the same
networks, numbers and bytes.

Example:
    >>> list(FIGURES)
    ['teaser', 'peeling_graph', 'firing_patterns', 'firing_probabilities', 'board', 'seeds',
     'means']
    >>> FIGURES["board"].datasets
    ('cifar10',)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.files import write_files
from gradpeel.paper.figures.board import board
from gradpeel.paper.figures.firing_patterns import firing_patterns
from gradpeel.paper.figures.firing_probabilities import firing_probabilities
from gradpeel.paper.figures.frame import Drawn, title_in, without_heading
from gradpeel.paper.figures.means import means
from gradpeel.paper.figures.peeling_graph import peeling_graph
from gradpeel.paper.figures.seeds import seeds
from gradpeel.paper.figures.teaser import teaser
from gradpeel.reporting.style import pdf, png, svg

__all__ = [
    "FIGURES",
    "Drawn",
    "PaperFigure",
    "board",
    "draw_figures",
    "firing_patterns",
    "firing_probabilities",
    "means",
    "peeling_graph",
    "seeds",
    "teaser",
]

DPI = 300
HELD = 2
"""Data sets held in memory at a time."""

Load: TypeAlias = Callable[[str], Dataset]


class _Draw(Protocol):
    def __call__(self, load: Load, *, seed: int, notes: Mapping[str, str]) -> Drawn: ...


@dataclass(frozen=True)
class PaperFigure:
    """One of the figures.

    Attributes:
        description: what it shows, in a line.
        datasets: names of the data sets it needs.
        draw: draws it, given a function that loads a data set by name, a seed, and notes on how
            data sets differ from the paper's, which are read once the data is loaded.
    """

    description: str
    datasets: tuple[str, ...]
    draw: _Draw


def _of_one(function: Callable[..., Drawn], name: str) -> _Draw:
    def draw(load: Load, *, seed: int, notes: Mapping[str, str]) -> Drawn:
        return function(load(name), seed=seed, notes=notes)

    return draw


# Side by side in the figure: data whose mean is about flat on the left, the rest on the right.
_ALL = ("cifar10", "mnist", "cifar100", "emnist", "imagenet", "fashion_mnist", "svhn", "harus")


def _draw_probabilities(load: Load, *, seed: int, notes: Mapping[str, str]) -> Drawn:
    return firing_probabilities(map(load, _ALL), seed=seed, notes=notes)


def _draw_means(load: Load, *, seed: int, notes: Mapping[str, str]) -> Drawn:
    del seed  # nothing is drawn at random
    return means(load("cifar10"), notes=notes)


FIGURES: Mapping[str, PaperFigure] = MappingProxyType(
    {
        "teaser": PaperFigure(
            "original and rebuilt ImageNet samples of one round",
            ("imagenet",),
            _of_one(teaser, "imagenet"),
        ),
        "peeling_graph": PaperFigure(
            "the peeling graph of a small run beside its twin, an LT code",
            ("cifar10",),
            _of_one(peeling_graph, "cifar10"),
        ),
        "firing_patterns": PaperFigure(
            "activation grids of mirrored and independent weights",
            ("cifar10",),
            _of_one(firing_patterns, "cifar10"),
        ),
        "firing_probabilities": PaperFigure(
            "how often neurons fire, passive and mirrored, for eight data sets",
            _ALL,
            _draw_probabilities,
        ),
        "board": PaperFigure(
            "the activation grid, peeled round by round",
            ("cifar10",),
            _of_one(board, "cifar10"),
        ),
        "seeds": PaperFigure(
            "samples that set the cascade off, and typical ones",
            ("imagenet",),
            _of_one(seeds, "imagenet"),
        ),
        "means": PaperFigure(
            "the mean picture, and how far its channels are from flat",
            ("cifar10",),
            _draw_means,
        ),
    }
)
"""The figures by name, in the order of the paper."""


def draw_figures(
    load: Load,
    out: Path,
    *,
    only: Sequence[str] | None = None,
    seed: int = 0,
    titles: bool = True,
    notes: Mapping[str, str] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Draw figures of the paper and write each as PNG, SVG and PDF, with all captions in one file.

    All are drawn before the first is written, so a failure leaves no files behind.

    Args:
        load: gives a data set by its name, such as "cifar10".
        out: the directory; it is made if need be.
        only: names of the figures wanted; all if not given.
        seed: seeds every draw.
        titles: whether title and caption stand in the drawing; `captions.json` has them always.
        notes: how data sets differ from the paper's, by name; they end the captions. They are read
            after the data is loaded, so `load` may fill them.
        on_progress: called with a line of text before each figure.

    Returns:
        `<name>.png`, `.svg` and `.pdf` of each figure in the paper's order, then `captions.json`.

    Raises:
        InputError: there is no such figure, the directory cannot be written to, or data does not
            fit; the line names the figure and the rule.

    Example:
        >>> draw_figures(load, Path("figures"), only=["board"])  # doctest: +SKIP
        [...'figures/board.png'), ...'board.svg'), ...'board.pdf'), ...'captions.json')]
    """
    wanted = _chosen(only)
    say = on_progress or (lambda _: None)
    write_files(out, {})  # a directory that cannot be written to is reported before the work
    held = lru_cache(maxsize=HELD)(load)
    files: dict[str, bytes] = {}
    captions: dict[str, object] = {}
    for name in wanted:
        say(f"{name}: {FIGURES[name].description} ...")
        try:
            drawn = FIGURES[name].draw(held, seed=seed, notes={} if notes is None else notes)
        except InputError as error:
            raise InputError(f"figure {name}: {error}") from None
        title = title_in(drawn.figure)
        box = None if titles else without_heading(drawn.figure)
        for kind, written in (("png", png), ("svg", svg), ("pdf", pdf)):
            files[f"{name}.{kind}"] = written(drawn.figure, dpi=DPI, box=box)
        captions[name] = {"title": title, "caption": drawn.caption, **drawn.numbers}
    text = json.dumps({"seed": seed, "figures": captions}, indent=2, ensure_ascii=False)
    files["captions.json"] = f"{text}\n".encode()
    return write_files(out, files)


def _chosen(only: Sequence[str] | None) -> list[str]:
    if only is None:
        return list(FIGURES)
    for name in only:
        if name not in FIGURES:
            raise InputError(f"only={name!r}: expected some of {', '.join(FIGURES)}")
    if not only:
        raise InputError(f"only={only!r}: expected some of {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in only]
