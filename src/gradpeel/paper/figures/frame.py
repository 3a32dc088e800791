"""What the figures of the paper share: two widths, a heading, and what each hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gradpeel.reporting.style import GREY, any_script, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

__all__ = ["COLUMN", "LETTERS", "PAGE", "Drawn", "framed", "title_in", "without_heading"]

COLUMN, PAGE = 3.5, 7.16
"""Inches: a column and both columns of the paper. Figures are drawn as large as they are printed,
so that a letter of 7 points is one on paper."""
LETTERS = 7.0
"""Points: the size of most text."""
MARGIN = 0.06
"""Inches: around the heading."""
TITLE, CAPTION = "title", "caption"
"""What the two texts of a heading are called in a figure."""


class Drawn(NamedTuple):
    """A figure and what it shows, in a sentence and in numbers.

    Attributes:
        figure: the drawing; the caption stands in it, below the title.
        caption: what is seen, with the measured numbers.
        numbers: these numbers and those they come from, as plain values for JSON.
    """

    figure: Figure
    caption: str
    numbers: dict[str, object]


def framed(width: float, body: float, title: str, caption: str) -> tuple[Figure, float]:
    r"""Make a figure with a title and a caption, both wrapped to its width.

    Args:
        width: of the figure, in inches.
        body: inches below the caption.
        title: what is seen, in bold.
        caption: the lines below it.

    Returns:
        The figure, and how far below its upper edge the body begins, in inches.

    Example:
        >>> figure, top = framed(COLUMN, 2.0, "A title", "a caption " * 20)
        >>> [text.get_text().count("\n") for text in figure.texts]
        [0, 3]
        >>> round(float(figure.get_figheight() - top), 6)
        2.0
    """
    figure = new_figure(width, body)
    texts = [
        figure.text(0, 0, title, size=8.5, weight="bold", va="top", parse_math=False, gid=TITLE),
        figure.text(
            0, 0, caption, size=LETTERS, color=GREY, va="top", parse_math=False, gid=CAPTION
        ),
    ]
    tops, top = [], MARGIN
    with any_script():
        for text in texts:
            # A hundredth less: letters in an SVG file are a little wider than on a screen.
            _wrap(text, 0.99 * (width - 2 * MARGIN), figure.dpi)
            tops.append(top)
            top += text.get_window_extent().height / figure.dpi + MARGIN
    figure.set_size_inches(width, top + body)
    for text, place in zip(texts, tops, strict=True):
        text.set_position((MARGIN / width, 1 - place / (top + body)))
    return figure, top


def title_in(figure: Figure) -> str:
    """The title of a figure, in one line."""
    return " ".join(_text(figure, TITLE).get_text().split())


def without_heading(figure: Figure) -> Bbox:
    """Hide title and caption; returns what is left of the figure, in inches.

    Example:
        >>> figure, top = framed(COLUMN, 2.0, "A title", "a caption")
        >>> [round(float(end), 6) for end in without_heading(figure).bounds]
        [0.0, 0.0, 3.5, 2.0]
    """
    from matplotlib.transforms import Bbox  # noqa: PLC0415 -- slow to import

    texts = [_text(figure, name) for name in (TITLE, CAPTION)]
    with any_script():
        lowest = texts[-1].get_window_extent().y0 / figure.dpi
    for text in texts:
        text.set_visible(False)
    return Bbox.from_extents(0.0, 0.0, figure.get_figwidth(), lowest - MARGIN)


def _text(figure: Figure, name: str) -> Text:
    return next(text for text in figure.texts if text.get_gid() == name)


def _wrap(text: Text, width: float, dpi: float) -> None:
    """Break a text into lines that are no wider than so many inches."""
    line, *words = text.get_text().split()
    lines = []
    for word in words:
        text.set_text(f"{line} {word}")
        if text.get_window_extent().width > width * dpi:
            lines.append(line)
            line = word
        else:
            line = text.get_text()
    text.set_text("\n".join([*lines, line]))
