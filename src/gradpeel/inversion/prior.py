"""What pictures look like, for what features leave open.

Neighbouring pixels are alike (total variation), their differences change slowly (second
differences), and colours change together: of three channels, the two differences of colours vary
far less than the brightness. None of it is learned from data.

Example:
    >>> flat, noisy = torch.full((1, 3, 8, 8), 0.5), torch.rand(1, 3, 8, 8)
    >>> prior = picture_prior((3, 8, 8))
    >>> prior is not None and bool(prior(flat) < prior(noisy))
    True
    >>> picture_prior((30,)) is None
    True
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Prior", "picture_prior"]

Prior = Callable[[Tensor], Tensor]
"""From inputs, (n, *sample_shape), to how unlike pictures they are, (n,)."""

SMALLEST = 4
"""Pixels that a side must have for neighbours to mean something."""
COLOUR = 3.0
"""How much less than the brightness the differences of colours vary."""
ROUND_OFF = 1e-6
"""Keeps the derivative of a root finite where nothing changes."""


def picture_prior(sample_shape: tuple[int, ...]) -> Prior | None:
    """The prior of samples of a shape; None where they are not pictures.

    Pictures are (H, W), (channels, H, W) or, with one or three channels, (H, W, channels).
    """
    last = len(sample_shape) == 3 and sample_shape[2] in (1, 3) and sample_shape[0] > 3
    sides = sample_shape[:2] if last else sample_shape[-2:]
    if len(sample_shape) not in (2, 3) or min(sides) < SMALLEST:
        return None

    def prior(x: Tensor) -> Tensor:
        if x.ndim == 3:
            x = x[:, None]
        return _roughness(_opponents(x.movedim(3, 1) if last else x))

    return prior


def _opponents(x: Tensor) -> Tensor:
    """Three colours, (n, 3, H, W), as brightness and two differences; other channels as they are.

    Args:
        x: (n, channels, H, W).
    """
    if x.shape[1] != 3:
        return x
    red, green, blue = x.unbind(1)
    brightness = (red + green + blue) / 3**0.5
    one, other = (red - blue) / 2**0.5, (red - 2 * green + blue) / 6**0.5
    return torch.stack([brightness, COLOUR * one, COLOUR * other], 1)


def _roughness(x: Tensor) -> Tensor:
    """Mean length of first and second differences, summed over channels."""
    down, right = x.diff(dim=2), x.diff(dim=3)
    first = down[..., :-1].square() + right[..., :-1, :].square()
    second = (
        down.diff(dim=2)[..., :-2].square()
        + right.diff(dim=3)[..., :-2, :].square()
        + 2 * down.diff(dim=3)[..., :-1, :-1].square()
    )
    lengths = ((squares + ROUND_OFF).sqrt().mean((2, 3)).sum(1) for squares in (first, second))
    return 0.5 * sum(lengths)  # type: ignore[return-value]
