"""Places of the marks in a sweep's charts: numbers for the template, which draws them as SVG.

Example:
    >>> panels = line_panels([])
    >>> panels
    []
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gradpeel.datasets.standard import STANDARD
from gradpeel.defences.options import NONE
from gradpeel.paper.published import published_rates
from gradpeel.reporting.page.sweep_words import dataset_name, grouped, method_name, setting_name
from gradpeel.reporting.words import percent, printable, short
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.summary import Estimate, Group

__all__ = [
    "WIDTH",
    "Curves",
    "HeatMap",
    "Line",
    "Mark",
    "Panel",
    "curves",
    "heat_maps",
    "height",
    "line_panels",
    "points",
]

VARIED = {
    "clients": ("number of clients", "clients whose updates are added up"),
    "noise": ("noise", "noise on the update"),
    "defence": ("defence", "defence of the client"),
    "local_steps": ("local steps", "local steps"),
    "local_epochs": ("local epochs", "local epochs"),
    "local_batch_size": ("local batch size", "samples per local step"),
    "lr": ("learning rate", "learning rate of local training"),
}
"""Settings with charts of their own: what they are called, in headings and below an axis."""

WIDTH, HEIGHT = 400.0, 200.0
"""Of the plotting area of a chart, in the units of its SVG."""
COLUMN, ROW = 58.0, 24.0
"""Of one cell of a heat map."""
LETTER = 7.0
"""Width of a letter of a heat map's names, at most, on average."""
STRONGEST = 0.85
"""Opacity of a cell in which everything was recovered: its number must stay readable."""
SPREAD = 8.0
"""Width over which the seeds of a mark are spread."""
DASH = 18.0
"""Length of the line through a mark where nothing leads from one mark to the next."""
SLANT = 35.0
"""Degrees by which names below an axis are turned where they would touch each other."""
MARGIN = 62.0
"""On the left of a chart, for the numbers and the title of its axis."""
LEADING = 14.0
"""Space that a chart has below its numbers."""
LONGEST = 40
"""Letters of a name below an axis."""


@dataclass(frozen=True)
class Mark:
    """One point of a line: its place, the ends of its interval, its seeds, and the numbers."""

    x: float
    y: float
    low: float
    high: float
    seeds: tuple[tuple[float, float], ...]
    name: str
    ours: Estimate
    bound: float
    published: float | None


@dataclass(frozen=True)
class Line:
    """One method: its marks, and its lines as the points of SVG polylines.

    Between numbers a line leads from mark to mark. Names have no order, so each mark has a short
    line of its own.
    """

    method: str
    kind: str
    is_mirrored: bool
    has_rows: bool
    marks: tuple[Mark, ...]
    ours: tuple[str, ...]
    bound: tuple[str, ...]
    published: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """One chart: its title, its lines, and the numbers or names below its axis."""

    title: str
    below: str
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    has_names: bool

    @property
    def has_published(self) -> bool:
        """Does it hold a line of the paper's?"""
        return any(line.published for line in self.lines)

    @property
    def slant(self) -> float:
        """Degrees by which the names below the axis are turned."""
        is_tight = self._longest * len(self.ticks) > WIDTH
        return SLANT if self.has_names and is_tight else 0.0

    @property
    def drop(self) -> float:
        """How far turned names reach below the others."""
        below = self._longest * math.sin(math.radians(self.slant))
        return round(max(0.0, below - LEADING), 1)

    @property
    def margin(self) -> float:
        """On the left: turned names end at their mark, and begin before it."""
        across = math.cos(math.radians(SLANT))
        starts = [x - LETTER * len(name) * across for x, name in self.ticks if self.slant]
        return round(max([MARGIN, *(-start for start in starts)]), 1)

    @property
    def _longest(self) -> float:
        return LETTER * max((len(name) for _, name in self.ticks), default=0)


@dataclass(frozen=True)
class Curves:
    """The charts over one setting: the name of their place on the page, and of the setting."""

    place: str
    name: str
    panels: list[Panel]


@dataclass(frozen=True)
class HeatMap:
    """Rates by method and batch size: the text and the opacity of each cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, float] | None, ...]], ...]

    @property
    def margin(self) -> float:
        """Width of the names on the left."""
        return LETTER * max((len(method) for method, _ in self.rows), default=0) + 12.0

    @property
    def width(self) -> float:
        """Of the drawing, without the names."""
        return COLUMN * len(self.columns)

    @property
    def height(self) -> float:
        """Of the drawing."""
        return ROW * len(self.rows)


def line_panels(groups: Sequence[Group]) -> list[Panel]:
    """Recovery by batch size: one chart per data set and setting, one line per method."""
    return _panels(groups, lambda cell: cell.batch_size, _title, "batch size")


def curves(groups: Sequence[Group]) -> list[Curves]:
    """Recovery by every setting that a sweep varies: one chart per data set and batch size."""
    found = []
    for setting, (name, below) in VARIED.items():
        panels = _varied(groups, setting, below)
        if panels:
            found.append(Curves(f"by-{setting.replace('_', '-')}", name, panels))
    return found


def _varied(groups: Sequence[Group], setting: str, below: str) -> list[Panel]:
    def title(cell: Cell) -> str:
        others = setting_name(cell, without=setting)
        return f"{dataset_name(cell)}, batch of {cell.batch_size:,}, {others}"

    def value(cell: Cell) -> float | str:
        held: float | str = getattr(cell, setting)
        return held

    # The gradient of one batch has no learning rate, and no local steps.
    some = [group for group in groups if getattr(group.cell, setting) is not None]
    return [panel for panel in _panels(some, value, title, below) if len(panel.ticks) > 1]


def heat_maps(groups: Sequence[Group]) -> list[HeatMap]:
    """Recovery by method and batch size: one map per data set and setting."""
    maps = []
    for title, members in grouped(groups, _title).items():
        sizes = sorted({group.cell.batch_size for group in members})
        methods = list(dict.fromkeys(method_name(group.cell) for group in members))
        held = {
            (method_name(group.cell), group.cell.batch_size): group.ours.mean for group in members
        }
        rows = tuple(
            (method, tuple(_shade(held.get((method, size))) for size in sizes))
            for method in methods
        )
        maps.append(HeatMap(title, tuple(map(_number, sizes)), rows))
    return maps


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else short(value)


def _name(value: float | str) -> str:
    return printable(value, LONGEST) if isinstance(value, str) else _number(value)


def _title(cell: Cell) -> str:
    return f"{dataset_name(cell)}, {setting_name(cell)}"


def _shade(rate: float | None) -> tuple[str, float] | None:
    return None if rate is None else (percent(rate), round(STRONGEST * rate, 3))


def _panels(
    groups: Sequence[Group],
    across: Callable[[Cell], float | str],
    title: Callable[[Cell], str],
    below: str,
) -> list[Panel]:
    panels = []
    for name, members in grouped(groups, title).items():
        values = _in_order([across(group.cell) for group in members])
        # Equal steps: batch sizes, noises and learning rates grow by factors.
        step = WIDTH / max(len(values), 1)
        places = {value: round((at + 0.5) * step, 2) for at, value in enumerate(values)}
        methods = grouped(members, method_name)
        # Methods stand side by side where no line keeps them apart.
        has_names = any(isinstance(value, str) for value in values)
        dash = min(DASH, 0.8 * step / len(methods)) if has_names else 0.0
        lines = tuple(
            _line(
                method,
                of_method,
                across,
                places,
                dash=dash,
                aside=(at - (len(methods) - 1) / 2) * dash,
            )
            for at, (method, of_method) in enumerate(methods.items())
        )
        ticks = tuple((places[value], _name(value)) for value in values)
        panels.append(Panel(name, below, lines, ticks, has_names))
    return panels


def _in_order(values: Sequence[float | str]) -> list[float | str]:
    """Numbers by size, and names as the plan has them; each once."""
    numbers = sorted({value for value in values if not isinstance(value, str)})
    return [*numbers, *dict.fromkeys(value for value in values if isinstance(value, str))]


def _line(
    method: str,
    members: Sequence[Group],
    across: Callable[[Cell], float | str],
    places: dict[float | str, float],
    *,
    dash: float,
    aside: float,
) -> Line:
    """One method of a panel.

    Args:
        method: its name.
        members: its groups.
        across: the value on the axis.
        places: where the values are on it.
        dash: length of each mark's own line; 0 where one line leads from mark to mark.
        aside: how far its marks are from these places.
    """
    at = {value: round(place + aside, 2) for value, place in places.items()}
    marks = tuple(
        Mark(
            x=at[across(group.cell)],
            y=height(group.ours.mean),
            low=height(group.ours.low),
            high=height(group.ours.high),
            seeds=tuple(_seeds(at[across(group.cell)], group.rates)),
            name=_name(across(group.cell)),
            ours=group.ours,
            bound=group.bound.mean,
            published=_published(group.cell),
        )
        for group in sorted(members, key=lambda group: places[across(group.cell)])
    )
    return Line(
        method=method,
        kind=members[0].cell.design,
        is_mirrored=members[0].cell.weights == "mirrored",
        has_rows=members[0].cell.effort > 0,
        marks=marks,
        ours=_lines([(mark.x, mark.y) for mark in marks], dash),
        bound=_lines([(mark.x, height(mark.bound)) for mark in marks], dash),
        published=_lines(
            [(mark.x, height(mark.published)) for mark in marks if mark.published is not None],
            dash,
        ),
    )


def _lines(places: Sequence[tuple[float, float]], dash: float) -> tuple[str, ...]:
    """One line through some places, or a short one through each of them."""
    if not dash:
        return (points(places),) if places else ()
    half = dash / 2
    return tuple(points([(round(x - half, 2), y), (round(x + half, 2), y)]) for x, y in places)


def _seeds(x: float, rates: Sequence[float]) -> Iterable[tuple[float, float]]:
    """A dot for each seed, side by side; a single seed is its own mean and needs none."""
    for place, rate in enumerate(rates if len(rates) > 1 else ()):
        yield round(x + SPREAD * (place / (len(rates) - 1) - 0.5), 2), height(rate)


def height(rate: float) -> float:
    """Where a share stands in a chart, from its top."""
    return round(HEIGHT * (1 - rate), 2)


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """The points of an SVG polyline."""
    return " ".join(f"{x},{y}" for x, y in pairs)


def _published(cell: Cell) -> float | None:
    """The paper's rate for a cell with its parameters."""
    is_papers = (
        cell.dataset in STANDARD
        and cell.lr is None
        and cell.clients == 1
        and cell.defence == NONE
        and (cell.neurons, cell.tail, cell.dtype, cell.noise) == (1000, (), "float64", 0.0)
        and cell.scale in {None, 0.99}
        and cell.soliton in {None, (0.05, 0.4)}
        and cell.init in {None, "paper"}
    )
    if not is_papers:
        return None
    key = (STANDARD[cell.dataset].title, cell.method, cell.batch_size)
    return published_rates().get(key)
