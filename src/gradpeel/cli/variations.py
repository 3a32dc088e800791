"""The same audit with one thing changed: what `gradpeel audit --compare` runs alongside.

Example:
    >>> [one.name for one in variations("float64", 0.0, 64, most=1200)]
    ['float32', 'noise of 0.001', 'batch of 128']
"""

from __future__ import annotations

from dataclasses import dataclass

from gradpeel.reporting.words import short

__all__ = ["Variation", "variations"]

FIRST_NOISE, MORE = 1e-3, 10


@dataclass(frozen=True)
class Variation:
    """One changed setting, by name; the others stay as they are."""

    name: str
    dtype: str
    noise: float
    batch_size: int


def variations(dtype: str, noise: float, batch_size: int, *, most: int) -> list[Variation]:
    """Another precision, more noise, and twice the batch where there are that many samples.

    Args:
        dtype: what the client computes in.
        noise: on the update, relative to each gradient's own deviation.
        batch_size: samples in the batch.
        most: samples there are.
    """
    other = "float64" if dtype != "float64" else "float32"
    louder = MORE * noise if noise else FIRST_NOISE
    found = [
        Variation(other, other, noise, batch_size),
        Variation(f"noise of {short(louder)}", dtype, louder, batch_size),
    ]
    if 2 * batch_size <= most:
        found.append(Variation(f"batch of {2 * batch_size:,}", dtype, noise, 2 * batch_size))
    return found
