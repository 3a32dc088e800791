"""The two ways a design draws the target's weights (the paper's section "Trap Weights").

Both give every entry a Gaussian magnitude and a sign, and shrink the positive entries by s <= 1.
They differ in what one entry says about another. In the *independent* construction: nothing. In the
*mirrored* one every negative entry has a positive twin in its row, so that rows sum to about
zero at s = 1, and a neuron no longer leans towards or against the mean sample.

Example:
    >>> import numpy as np
    >>> row = draw_weights("mirrored", 1, 6, np.random.default_rng(0), scale=0.5)[0]
    >>> bool(np.allclose(np.sort(row[row > 0]), np.sort(-0.5 * row[row < 0])))
    True
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from gradpeel.checks import is_number
from gradpeel.errors import InputError

__all__ = [
    "Construction",
    "check_construction",
    "check_scale",
    "check_sigma",
    "draw_torch_default",
    "draw_weights",
]

Construction: TypeAlias = Literal["independent", "mirrored"]


def check_construction(construction: str) -> None:
    """Raise `InputError` unless `construction` is one of the two that exist."""
    if construction not in get_args(Construction):
        raise InputError(f"construction={construction!r}: expected 'independent' or 'mirrored'")


def check_scale(scale: float) -> None:
    """Raise `InputError` unless `scale` lies in (0, 1]."""
    if not (is_number(scale) and 0 < scale <= 1):
        raise InputError(f"scale={scale!r}: expected a number above 0 and at most 1")


def check_sigma(sigma: float) -> None:
    """Raise `InputError` unless `sigma` is a positive number."""
    if not (is_number(sigma) and sigma > 0):
        raise InputError(f"sigma={sigma!r}: expected a positive number")


def draw_weights(
    construction: Construction,
    neurons: int,
    features: int,
    rng: np.random.Generator,
    *,
    scale: float = 1.0,
    sigma: float = 0.5,
) -> NDArray[np.float64]:
    """Draw the target's weights, one row for each neuron.

    Formal guarantees:

    - "independent" at scale 1 is N(0, sigma^2), entry by entry: what an honest server sends;
    - in a row of "mirrored" the positive entries are -scale times the negative ones, each used
      once. With an odd number of features one negative entry, drawn like the others, stays
      without a twin: the row then leans towards silence, as trap weights are meant to.

    Args:
        construction: "independent" or "mirrored".
        neurons: Number of rows N.
        features: Number of columns F.
        rng: The source of randomness.
        scale: The factor s on the positive entries, in (0, 1].
        sigma: Standard deviation of the Gaussian magnitudes, positive.

    Returns:
        (neurons, features) weights.

    Raises:
        InputError: When a setting breaks its rule.
    """
    check_construction(construction)
    check_scale(scale)
    check_sigma(sigma)
    if construction == "independent":
        # The sign of a centred Gaussian is a fair coin independent of its magnitude: one draw
        # gives both.
        weights = rng.normal(0.0, sigma, size=(neurons, features))
        return np.multiply(weights, scale, out=weights, where=weights > 0)
    pairs = features // 2
    weights = np.empty((neurons, features))
    weights[:, pairs:] = -np.abs(rng.normal(0.0, sigma, size=(neurons, features - pairs)))
    weights[:, :pairs] = -scale * weights[:, pairs : 2 * pairs]
    return rng.permuted(weights, axis=1, out=weights)


def draw_torch_default(
    neurons: int, features: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw a layer from PyTorch's default law of `nn.Linear`: all of it U(-1/sqrt(F), 1/sqrt(F)).

    Args:
        neurons: Number of rows N.
        features: Number of columns F, positive.
        rng: The source of randomness; PyTorch's own generator is not touched.

    Returns:
        (neurons, features) weights and (neurons,) biases.
    """
    bound = 1 / math.sqrt(features)
    weights = rng.uniform(-bound, bound, size=(neurons, features))
    return weights, rng.uniform(-bound, bound, size=neurons)
