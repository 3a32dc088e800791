"""A picture in the terminal: half a character for each pixel, in its own colour.

Example:
    >>> import numpy as np
    >>> picture = terminal_picture(np.linspace(0, 1, 8 * 12 * 3).reshape(8, 12, 3), width=6)
    >>> Console(width=20, color_system=None).print(picture)
    ▀▀▀▀▀▀
    ▀▀▀▀▀▀
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

__all__ = ["shows_pictures", "terminal_picture"]

UPPER_HALF = "▀"


def shows_pictures(console: Console) -> bool:
    """Whether a console is a terminal with the characters and the colours that a picture needs."""
    has_colours = console.color_system in {"256", "truecolor"}
    return console.is_terminal and has_colours and not console.options.ascii_only


def terminal_picture(image: NDArray[np.floating[Any]], width: int) -> Text:
    """Draw a picture with characters that are two pixels high.

    Args:
        image: (height, width, 3) in [0, 1].
        width: columns to draw it in, at least 1; the height follows.
    """
    height = max(1, round(width * image.shape[0] / image.shape[1] / 2)) * 2
    pixels = np.rint(255 * _shrunk(_shrunk(image, height).swapaxes(0, 1), width).swapaxes(0, 1))
    rows = pixels.clip(0, 255).astype(int).tolist()
    lines = [
        Text.assemble(
            *(
                (UPPER_HALF, Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
                for top, bottom in zip(upper, lower, strict=True)
            ),
            no_wrap=True,
        )
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]
    return Text("\n").join(lines)


def _shrunk(image: NDArray[np.floating[Any]], size: int) -> NDArray[np.floating[Any]]:
    """The first axis in `size` steps: each the mean of what it covers, or the nearest row."""
    edges = np.linspace(0, len(image), size + 1)
    starts = np.minimum(edges[:-1].astype(int), len(image) - 1)
    ends = np.maximum(np.ceil(edges[1:]).astype(int), starts + 1)
    return np.stack([image[a:b].mean(axis=0) for a, b in zip(starts, ends, strict=True)])
