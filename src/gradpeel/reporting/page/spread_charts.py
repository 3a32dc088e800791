"""Places of the marks in the chart of repeated audits: numbers for the template.

Example:
    >>> chart_of([("1", [])], below="repeat").ticks
    ((200.0, '1'),)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradpeel.audits import Audits, TrainingCurve
from gradpeel.reporting.page.sweep_charts import WIDTH, height, points
from gradpeel.reporting.spread_words import Measure, measures

__all__ = ["SpreadChart", "SpreadLine", "SpreadMark", "chart_of", "spread_chart"]

MOST_TICKS = 12
"""More names do not fit below an axis."""


@dataclass(frozen=True)
class SpreadMark:
    """The median of one place, and the ends of its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class SpreadLine:
    """One thing measured: its style, its name, its marks, and the points of an SVG polyline."""

    kind: str
    name: str
    marks: tuple[SpreadMark, ...]
    points: str


@dataclass(frozen=True)
class SpreadChart:
    """A chart: its lines, the names below its axis, and what they name."""

    lines: tuple[SpreadLine, ...]
    ticks: tuple[tuple[float, str], ...]
    below: str


def spread_chart(found: Audits | TrainingCurve) -> SpreadChart:
    """What was measured, by training step or by repeat."""
    if isinstance(found, TrainingCurve):
        steps = zip(found.steps, found.at, strict=True)
        return chart_of(
            [(f"{step:,}", measures(audits)) for step, audits in steps], "training step"
        )
    single = [Audits((one,), found.varied) for one in found]
    return chart_of(
        [(str(number), measures(one)) for number, one in enumerate(single, start=1)], "repeat"
    )


def chart_of(columns: Sequence[tuple[str, Sequence[Measure]]], below: str) -> SpreadChart:
    """Lay out columns at equal distances: steps grow by factors.

    Args:
        columns: the name of each place on the axis, and what was measured there.
        below: what the axis shows.
    """
    width = WIDTH / len(columns)
    places = [round((at + 0.5) * width, 2) for at in range(len(columns))]
    kinds = {one.kind: one.name for _, found in columns for one in found}
    lines = []
    for kind, name in kinds.items():
        marks = tuple(
            SpreadMark(x, *map(height, (one.shares.median, one.shares.least, one.shares.most)))
            for x, (_, found) in zip(places, columns, strict=True)
            for one in found
            if one.kind == kind
        )
        lines.append(SpreadLine(kind, name, marks, points((mark.x, mark.y) for mark in marks)))
    every = -(-len(columns) // MOST_TICKS)
    ticks = tuple((x, name) for x, (name, _) in zip(places, columns, strict=True))
    return SpreadChart(tuple(lines), ticks[::every], below)
