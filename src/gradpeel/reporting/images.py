"""Samples as pictures, and how close a recovered picture is to its original.

Example:
    >>> import torch
    >>> shown = as_pictures(torch.rand(2, 3, 8, 8))
    >>> None if shown is None else shown.shape
    (2, 8, 8, 3)
    >>> as_pictures(torch.rand(2, 30)) is None
    True
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["as_pictures", "psnr", "ssim"]

WINDOW = 7
"""Side of the window over which structural similarity compares two pictures."""


def as_pictures(x: Tensor) -> NDArray[np.float64] | None:
    """Samples as (n, H, W) or (n, H, W, 3); None where they are not pictures.

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


def psnr(original: NDArray[np.float64], found: NDArray[np.float64], span: float) -> float | None:
    """Peak signal-to-noise ratio in decibels; None where the two pictures are equal.

    Args:
        original: a picture.
        found: another of the same shape.
        span: distance between black and white.

    Example:
        >>> psnr(np.zeros((8, 8)), np.full((8, 8), 0.1), 1.0)
        20.0
    """
    error = float(np.mean((original - found) ** 2))
    # An error whose square is below the smallest number is not an error either.
    return None if error == 0 or span == 0 else round(10 * math.log10(span**2 / error), 1)


def ssim(original: NDArray[np.float64], found: NDArray[np.float64], span: float) -> float:
    """Structural similarity (Wang et al., 2004), 1 for equal pictures: its mean over all windows.

    Windows are square and weigh their pixels alike; a picture smaller than `WINDOW` is one window.
    Colours are compared one by one.

    Args:
        original: a picture, (H, W) or (H, W, colours).
        found: another of the same shape.
        span: distance between black and white.

    Example:
        >>> picture = np.eye(8)
        >>> ssim(picture, picture, 1.0), round(ssim(picture, 1 - picture, 1.0), 2) < 0
        (1.0, True)
    """
    one, other = original / (span or 1.0), found / (span or 1.0)
    mean_one, mean_other = _window_means(one), _window_means(other)
    variances = _window_means(one**2 + other**2) - mean_one**2 - mean_other**2
    covariance = _window_means(one * other) - mean_one * mean_other
    # The constants of the paper keep flat windows from dividing by zero.
    light, contrast = 0.01**2, 0.03**2
    likeness = (2 * mean_one * mean_other + light) * (2 * covariance + contrast)
    most = (mean_one**2 + mean_other**2 + light) * (variances + contrast)
    return round(float(np.mean(likeness / most)), 6)


def _window_means(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of every window of a picture."""
    means = picture
    for axis in (0, 1):
        width = min(WINDOW, picture.shape[axis])
        sums = np.insert(means.cumsum(axis=axis), 0, 0.0, axis=axis)
        ends = np.arange(width, sums.shape[axis])
        means = (sums.take(ends, axis=axis) - sums.take(ends - width, axis=axis)) / width
    return means
