"""Samples as pictures that a page can hold: PNG files as data URIs, no two the same.

A rebuilt sample is mostly exact to more digits than a pixel has, so its picture is that of the
original, and is held once.

Example:
    >>> import torch
    >>> shown = as_pictures(torch.rand(2, 3, 8, 8))
    >>> None if shown is None else shown.shape
    (2, 8, 8, 3)
    >>> as_pictures(torch.rand(2, 30)) is None
    True
"""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["PREFIX", "Album", "as_pictures"]

PREFIX = "data:image/png;base64,"
BUDGET = 5_000_000
"""Letters that all pictures of a page may take together."""
SIDES = (128, 96, 64, 48, 32, 24, 16)
"""Pictures larger than this are shrunk, to the first side at which they fit the budget."""


def as_pictures(x: Tensor) -> NDArray[np.float64] | None:
    """Samples as (n, H, W) or (n, H, W, 3); None where they are no pictures.

    Pictures are (H, W), or have one or three colours in the last place, or in the first, as
    PyTorch's own layers take them.
    """
    shape = tuple(x.shape[1:])
    pixels = x.detach().double().numpy(force=True)
    if len(shape) == 3 and shape[2] not in (1, 3) and shape[0] in (1, 3):
        pixels = np.moveaxis(pixels, 1, 3)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] == 3):
        return pixels
    return None


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
        """Take in a picture, (H, W) or (H, W, 3), and tell its place."""
        shares = np.clip((pixels - self._low) / self._spread, 0, 1)
        # Twice, so that a value half-way between two levels goes the same way with its last digits
        # changed: a rebuilt sample is to have the picture of its original.
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
