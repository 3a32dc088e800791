"""The same audit with one thing changed, run alongside: what would change the result.

A report shows the shares side by side. Unless it is asked for, only quick audits are compared, and
for a limited time.

Example:
    >>> [one.name for one in variations("float64", 0.0, 64, most=1200)]
    ['float32', 'noise of 0.001', 'batch of 128']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from gradpeel.reporting.words import short

if TYPE_CHECKING:
    from gradpeel.audit import Audit

__all__ = ["QUICK", "SECONDS", "Variation", "compare", "described", "variations"]

FIRST_NOISE, MORE = 1e-3, 10
QUICK = 2.0
"""Seconds; an audit that was decoded faster is compared without being asked to."""
SECONDS = 10.0
"""For all comparisons together, where nobody asked for them."""


@dataclass(frozen=True)
class Variation:
    """One changed setting, by name; the others stay as they are."""

    name: str
    dtype: str
    noise: float
    batch_size: int


class _OutOfTimeError(Exception):
    """A comparison was still running when the time was up."""


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


def compare(
    changed: Iterable[Variation],
    run: Callable[[Variation, Callable[[object], None]], Audit],
    *,
    asked: bool | None,
    took: float,
) -> dict[str, Audit | None]:
    """Run each variation if that was asked for; otherwise after a quick audit, for a limited time.

    Args:
        changed: what to run.
        run: audits a variation; it calls its second argument with every sign of progress, which is
            where the audit is abandoned once the time is up.
        asked: whether to compare; None if nobody said.
        took: seconds that the audit itself was decoded in.

    Returns:
        The audits by name; None for those that were not finished.
    """
    if asked is False or (asked is None and took >= QUICK):
        return {}
    end = math.inf if asked else perf_counter() + SECONDS

    def go_on(_: object) -> None:
        if perf_counter() > end:
            raise _OutOfTimeError

    found: dict[str, Audit | None] = {}
    for one in changed:
        try:
            go_on(None)
            found[one.name] = run(one, go_on)
        except _OutOfTimeError:
            found[one.name] = None
    return found


def described(compared: Mapping[str, Audit | None]) -> str:
    """The comparisons in one line for the terminal.

    Example:
        >>> described({"float32": None})
        'With float32: not finished within 10 seconds (--compare takes as long as it needs).'
    """
    done = {name: audit.score for name, audit in compared.items() if audit is not None}
    lines = [f"{name}: {score.read:,} of {score.batch_size:,} read" for name, score in done.items()]
    left = [name for name in compared if name not in done]
    if left:
        lines.append(
            f"{', '.join(left)}: not finished within {SECONDS:g} seconds (--compare takes as long "
            "as it needs)"
        )
    return f"With {'; '.join(lines)}."
