"""Places of the marks in the page's charts: numbers for the template, which draws them as SVG.

Charts have no script: they look the same on paper and with scripts switched off.

Example:
    >>> [(bar.name, bar.count) for bar in degree_bars((1, 2, 0, 5), ())]
    [('0', 1), ('1', 2), ('2', 0), ('3', 5)]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradpeel.reporting.page.payload import Risk

__all__ = [
    "Bar",
    "Bars",
    "Curve",
    "Dot",
    "Scatter",
    "bars",
    "degree_bars",
    "probability_bars",
    "residual_curve",
    "scatter",
]

WIDTH, HEIGHT = 400.0, 200.0
"""Of the plotting area of a chart, in the units of its SVG."""
MOST_DOTS = 3000
TICKS = 4
APART = 0.82
"""Share of the height for the rounds; the rest is for samples that were not recovered."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits of an exponent."""
LOWEST = 1e-18
"""Residuals below it are drawn there: they cannot be distinguished from zero."""


@dataclass(frozen=True)
class Bar:
    """One bar: what it counts, how many, and how many the design aims at (None: it does not)."""

    name: str
    count: int
    target: float | None = None


@dataclass(frozen=True)
class Bars:
    """A bar chart: for each bar its left edge, width, top, and the height of its target mark."""

    places: tuple[tuple[Bar, float, float, float, float | None], ...]
    ticks: tuple[tuple[float, str], ...]
    every: int


@dataclass(frozen=True)
class Dot:
    """One sample: its place in the chart, and what became of it."""

    x: float
    y: float
    is_recovered: bool
    sample: int


@dataclass(frozen=True)
class Scatter:
    """Atypicality against round."""

    dots: tuple[Dot, ...]
    lines: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Curve:
    """A line with marks: its points as SVG writes them, and the names along both axes."""

    points: str
    marks: tuple[tuple[float, float], ...]
    names: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]


def degree_bars(degrees: Sequence[int], target: Sequence[float]) -> list[Bar]:
    """How many neurons have which degree, in bins that grow: 0, 1, 2, 3, 4, 5-6, 7-9, ...

    Args:
        degrees: how many neurons have degree 0, 1, ..., B.
        target: how many the design aims at, for degrees 1, ..., B, or nothing.
    """
    wanted = [0.0, *target]
    named = []
    for low, high in _growing(len(degrees)):
        name = str(low) if high == low + 1 else f"{low}–{high - 1}"
        aim = sum(wanted[low:high]) if target else None
        named.append(Bar(name, sum(degrees[low:high]), aim))
    return named


def _growing(end: int) -> Iterator[tuple[int, int]]:
    low = 0
    while low < end:
        high = min(end, max(low + 1, math.floor(low * 1.4)))
        yield low, high
        low = high


def probability_bars(degrees: Sequence[int], bins: int = 20) -> list[Bar]:
    """How many neurons fire on which share of the batch: the histogram of p_j.

    Example:
        >>> [bar.count for bar in probability_bars((1, 0, 0, 0, 4), bins=2)]
        [1, 4]
    """
    batch_size = len(degrees) - 1
    counts = [0] * bins
    for degree, number in enumerate(degrees):
        # In whole numbers, so that no edge of a bin falls to rounding.
        counts[min(degree * bins // batch_size, bins - 1)] += number
    edges = [f"{100 * place // bins}" for place in range(bins + 1)]
    pairs = zip(itertools.pairwise(edges), counts, strict=True)
    return [Bar(f"{low}–{high} %", count) for (low, high), count in pairs]


def bars(shown: Sequence[Bar], labels: int = 12) -> Bars:
    """Lay out a bar chart; at most `labels` of its bars are named below it."""
    highest = max(max(bar.count, bar.target or 0.0) for bar in shown) or 1
    step = WIDTH / len(shown)

    def height(value: float) -> float:
        return round(HEIGHT * (1 - value / highest), 2)

    return Bars(
        places=tuple(
            (
                bar,
                round(place * step, 2),
                round(step, 2),
                height(bar.count),
                None if bar.target is None else height(bar.target),
            )
            for place, bar in enumerate(shown)
        ),
        ticks=tuple((height(value), f"{value:g}") for value in _round_numbers(highest)),
        every=-(-len(shown) // labels),
    )


def _round_numbers(highest: float) -> list[float]:
    """Round numbers from 0 to at most `highest`."""
    size = 10 ** math.floor(math.log10(highest / TICKS)) if highest > 0 else 1.0
    step = next(size * by for by in (1, 2, 5, 10) if highest / (size * by) <= TICKS)
    step = max(step, 1) if highest >= 1 else step
    return [step * place for place in range(math.floor(highest / step) + 1)]


def scatter(risk: Risk) -> Scatter:
    """Lay out atypicality, on a logarithmic axis, against the round of recovery.

    Those that were not recovered have a line of their own at the bottom.
    """
    last = max(risk.rounds)
    positive = [value for value in risk.atypicality if value > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    span = math.log(high) - math.log(low) or 1.0
    apart = HEIGHT * (APART if 0 in risk.rounds else 1)
    step = apart / max(last, 1)

    def across(value: float) -> float:
        share = (math.log(value) - math.log(low)) / span if value > 0 else 0.0
        return round(10 + share * (WIDTH - 20), 2)

    def down(number: int) -> float:
        return (number - 0.5) * step if number else (apart + HEIGHT) / 2 + 6

    every = -(-len(risk.rounds) // MOST_DOTS)
    dots = []
    for sample in range(0, len(risk.rounds), every):
        number = risk.rounds[sample]
        # Many samples share a round: spread them over its height, always in the same way.
        spread = (sample * 0.618034 % 1 - 0.5) * min(step * 0.7, 24)
        y = round(down(number) + spread, 2)
        dots.append(Dot(across(risk.atypicality[sample]), y, number > 0, sample))
    numbers = range(1, last + 1, -(-last // 8)) if last else range(0)
    lines = [(round(down(number), 2), f"round {number}") for number in numbers]
    if 0 in risk.rounds:
        lines.append((round(down(0), 2), "not recovered"))
    return Scatter(
        dots=tuple(dots),
        lines=tuple(lines),
        ticks=tuple((across(value), _short(value)) for value in _decades(low, high)),
    )


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two numbers; their ends where there are none."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1)
    within = [by * 10.0**power for power in powers for by in (1, 2, 5)]
    shown = [value for value in within if low <= value <= high]
    return shown[:: -(-len(shown) // 8)] if len(shown) > 1 else sorted({low, high})


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def residual_curve(residuals: Sequence[float]) -> Curve | None:
    """Lay out the residual after each round, on a logarithmic axis; None without a round.

    Args:
        residuals: of the start and of each round, relative to the update's.
    """
    if len(residuals) < 2:
        return None
    powers = [math.log10(max(value, LOWEST)) for value in residuals]
    top, bottom = max(math.ceil(max(powers)), 0), min(math.floor(min(powers)), -1)
    step = WIDTH / len(powers)

    def down(power: float) -> float:
        return round(HEIGHT * (top - power) / (top - bottom), 2)

    marks = tuple(
        (round((place + 0.5) * step, 2), down(power)) for place, power in enumerate(powers)
    )
    every, apart = -(-len(powers) // 12), -(-(top - bottom) // TICKS)
    return Curve(
        points=" ".join(f"{x},{y}" for x, y in marks),
        marks=marks,
        names=tuple(
            (x, str(place) if place else "start")
            for place, (x, _) in enumerate(marks)
            if place % every == 0
        ),
        ticks=tuple(
            (down(power), f"10{str(power).translate(RAISED)}" if power else "1")
            for power in range(top, bottom - 1, -apart)
        ),
    )
