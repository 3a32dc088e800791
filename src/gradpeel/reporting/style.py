"""How every figure looks, and the one place that imports matplotlib.

Figures are made without pyplot, so no window and no global state is touched: they can be drawn on a
server or beside a user's own plots. Colours are those of Okabe and Ito, which people with any kind
of colour vision can tell apart. Names come from files, so no text is read as mathematics.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALE",
    "PURPLE",
    "VERMILLION",
    "any_script",
    "bare",
    "hatched",
    "heading",
    "new_figure",
    "place_axes",
    "png",
    "svg",
]

BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREEN = "#009E73"
ORANGE = "#E69F00"
PURPLE = "#CC79A7"
GREY = "#666666"
PALE = "#F0F0F0"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    # matplotlib takes a while to import; `import gradpeel` need not wait for it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def place_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a distance from the top left corner; everything in inches."""
    across, down = figure.get_size_inches().tolist()
    return figure.add_axes(
        (left / across, 1 - (top + height) / down, width / across, height / down)
    )


def heading(figure: Figure, title: str, caption: str) -> None:
    """A title and a line below it, at the top left."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.10 / height, title, size=12, weight="bold", va="top", parse_math=False)
    figure.text(0.01, 1 - 0.36 / height, caption, size=9, color=GREY, va="top", parse_math=False)


def bare(axes: Axes) -> None:
    """Remove ticks, keep a thin frame."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(linewidth=0.4, edgecolor=GREY)


def hatched(axes: Axes) -> None:
    """Fill a frame with hatching: here is nothing."""
    bare(axes)
    axes.patch.set(facecolor=PALE, edgecolor="#BBBBBB", hatch="////", linewidth=0)


def png(figure: Figure, *, dpi: int = 150, box: Bbox | None = None) -> bytes:
    """The figure as the bytes of a PNG file, in true colours.

    Args:
        figure: what to draw.
        dpi: pixels to an inch.
        box: the part of the figure to draw, in inches; all by default.
    """
    from PIL import Image  # noqa: PLC0415

    drawn, small = io.BytesIO(), io.BytesIO()
    with any_script():
        figure.savefig(drawn, format="png", dpi=dpi, bbox_inches=box)
    Image.open(drawn).convert("RGB").save(small, "PNG", optimize=True)
    return small.getvalue()


def pdf(figure: Figure, *, dpi: int = 300, box: Bbox | None = None) -> bytes:
    """The figure as the bytes of a PDF file; the same figure gives the same bytes.

    Args:
        figure: what to draw.
        dpi: pixels to an inch of the pictures in it, which stay pictures.
        box: the part of the figure to draw, in inches; all by default.

    Example:
        >>> pdf(new_figure(1, 1))[:5], pdf(new_figure(1, 1)) == pdf(new_figure(1, 1))
        (b'%PDF-', True)
    """
    import matplotlib as mpl  # noqa: PLC0415

    drawn = io.BytesIO()
    # Type 42: journals reject the default, Type 3. The date would be that of the day.
    with mpl.rc_context({"pdf.fonttype": 42}), any_script():
        figure.savefig(
            drawn, format="pdf", dpi=dpi, bbox_inches=box, metadata={"CreationDate": None}
        )
    return drawn.getvalue()


def svg(figure: Figure, *, dpi: int = 300, box: Bbox | None = None) -> bytes:
    """The figure as the bytes of an SVG file; the same figure gives the same bytes.

    Letters are drawn as outlines: they look the same, and fit where they were put, on a machine
    that lacks the font.

    Args:
        figure: what to draw.
        dpi: pixels to an inch of the pictures in it, which stay pictures.
        box: the part of the figure to draw, in inches; all by default.

    Example:
        >>> svg(new_figure(1, 1)) == svg(new_figure(1, 1))
        True
    """
    import matplotlib as mpl  # noqa: PLC0415

    drawn = io.BytesIO()
    # Names of parts are random without a salt, and the date is that of the day.
    with mpl.rc_context({"svg.hashsalt": "gradpeel", "svg.fonttype": "path"}), any_script():
        figure.savefig(drawn, format="svg", dpi=dpi, bbox_inches=box, metadata={"Date": None})
    return drawn.getvalue()


@contextmanager
def any_script() -> Iterator[None]:
    """A name in a script that the font lacks is drawn as boxes, which is harmless."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
