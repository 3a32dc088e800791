"""Pictures that a page can hold: PNG files as data URIs, no two the same.

A recovered sample is mostly exact to more digits than a pixel has, so its picture is that of the
original and is held once.

Example:
    >>> album = Album(0.0, 1.0)
    >>> album.add(np.zeros((8, 8))), album.add(np.ones((8, 8))), album.add(np.full((8, 8), 1e-9))
    (0, 1, 0)
"""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUDGET", "PREFIX", "SIDES", "Album"]

PREFIX = "data:image/png;base64,"
BUDGET = 5_000_000
"""Letters that all pictures of a page may take together."""
SIDES = (128, 96, 64, 48, 32, 24, 16)
"""Pictures larger than this are shrunk, to the first side at which they fit the budget."""


class Album:
    """Pictures on a common scale, each held once.

    Args:
        low: what is black.
        high: what is white.
        side: pictures larger than this are shrunk to it.
    """

    def __init__(self, low: float, high: float, side: int = SIDES[0]) -> None:
        self._low, self._spread, self._side = low, (high - low) or 1.0, side
        self._places: dict[bytes, int] = {}
        self.pictures: list[str] = []

    def add(self, pixels: NDArray[np.float64]) -> int:
        """Take in a picture, (H, W) or (H, W, 3), and return its place."""
        shares = np.clip((pixels - self._low) / self._spread, 0, 1)
        # Twice, so that a value half-way between two levels goes the same way with its last digits
        # changed: a recovered sample is to have the picture of its original.
        levels = np.rint(np.round(np.nan_to_num(shares) * 255, 6)).astype(np.uint8)
        key = levels.tobytes()
        if key not in self._places:
            self._places[key] = len(self.pictures)
            self.pictures.append(PREFIX + base64.b64encode(self._png(levels)).decode("ascii"))
        return self._places[key]

    @property
    def letters(self) -> int:
        """How much room all pictures take."""
        return sum(map(len, self.pictures))

    def _png(self, levels: NDArray[np.uint8]) -> bytes:
        from PIL import Image  # noqa: PLC0415 -- only pages with pictures need it

        picture = Image.fromarray(levels)
        # The short side never falls below one pixel.
        picture.thumbnail((self._side, self._side), Image.Resampling.BOX)
        file = io.BytesIO()
        picture.save(file, "PNG", optimize=True)
        return file.getvalue()
