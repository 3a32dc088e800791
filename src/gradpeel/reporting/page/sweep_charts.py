"""Where the marks of a sweep's charts stand: numbers for the template, which draws them as SVG.

Example:
    >>> panels = line_panels([])
    >>> panels
    []
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gradpeel.datasets.standard import STANDARD
from gradpeel.paper.colours import sequential
from gradpeel.paper.published import published_rates
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.summary import Estimate, Group

__all__ = ["HeatMap", "Line", "Mark", "Panel", "heat_maps", "line_panels", "noise_panels"]

WIDTH, HEIGHT = 400.0, 200.0
"""Of the plotting area of a chart, in the units of its SVG."""
ROOM, ROW = 46.0, 24.0
"""Of one cell of a heat map."""


@dataclass(frozen=True)
class Mark:
    """One point of a line: where it stands, the ends of its interval, and the numbers."""

    x: float
    y: float
    low: float
    high: float
    name: str
    ours: Estimate
    bound: float
    published: float | None


@dataclass(frozen=True)
class Line:
    """One method: its marks, and its lines as the points of SVG polylines."""

    method: str
    kind: str
    marks: tuple[Mark, ...]
    ours: str
    bound: str
    published: str

    @property
    def is_mirrored(self) -> bool:
        """Are its weights mirrored? Those get another mark."""
        return self.method.endswith("-Mir")


@dataclass(frozen=True)
class Panel:
    """One chart: its title, its lines, and the names below its axis."""

    title: str
    below: str
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]

    @property
    def has_published(self) -> bool:
        """Is there a line of the paper's in it?"""
        return any(line.published for line in self.lines)


@dataclass(frozen=True)
class HeatMap:
    """Rates by method and batch size, as coloured cells."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str] | None, ...]], ...]

    @property
    def width(self) -> float:
        """Of the drawing."""
        return ROOM * len(self.columns)

    @property
    def height(self) -> float:
        """Of the drawing."""
        return ROW * len(self.rows)


def line_panels(groups: Sequence[Group]) -> list[Panel]:
    """Recovery against batch size: a chart for each data set and setting, a line a method."""
    return _panels(groups, lambda cell: cell.batch_size, lambda cell: cell.variant, "batch size")


def noise_panels(groups: Sequence[Group]) -> list[Panel]:
    """Recovery against noise, where a sweep has several: a chart for data set and batch size."""
    if len({group.cell.noise for group in groups}) < 2:
        return []

    def rest(cell: Cell) -> str:
        return f"B={cell.batch_size}, {cell.variant.split(' noise')[0]}"

    return _panels(groups, lambda cell: cell.noise, rest, "noise on the update")


def heat_maps(groups: Sequence[Group]) -> list[HeatMap]:
    """Recovery by method and batch size: a map for each data set and setting."""
    maps = []
    for title, members in _grouped(groups, lambda cell: cell.variant).items():
        sizes = sorted({group.cell.batch_size for group in members})
        methods = list(dict.fromkeys(group.cell.method for group in members))
        held = {(group.cell.method, group.cell.batch_size): group.ours.mean for group in members}
        rows = tuple(
            (method, tuple(_shade(held.get((method, size))) for size in sizes))
            for method in methods
        )
        maps.append(HeatMap(title, tuple(map(str, sizes)), rows))
    return maps


def _shade(rate: float | None) -> tuple[str, str] | None:
    return None if rate is None else (f"{rate:.2f}", sequential(rate))


def _grouped(groups: Sequence[Group], rest: Callable[[Cell], str]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(f"{group.cell.dataset}, {rest(group.cell)}", []).append(group)
    return found


def _panels(
    groups: Sequence[Group],
    across: Callable[[Cell], float],
    rest: Callable[[Cell], str],
    below: str,
) -> list[Panel]:
    panels = []
    for title, members in _grouped(groups, rest).items():
        values = sorted({across(group.cell) for group in members})
        # Equal steps: batch sizes and noises both grow by factors.
        step = WIDTH / max(len(values), 1)
        places = {value: round((at + 0.5) * step, 2) for at, value in enumerate(values)}
        methods = dict.fromkeys(group.cell.method for group in members)
        lines = tuple(
            _line(method, [g for g in members if g.cell.method == method], across, places)
            for method in methods
        )
        ticks = tuple((places[value], f"{value:g}") for value in values)
        panels.append(Panel(title, below, lines, ticks))
    return panels


def _line(
    method: str,
    members: Sequence[Group],
    across: Callable[[Cell], float],
    places: dict[float, float],
) -> Line:
    marks = tuple(
        Mark(
            x=places[across(group.cell)],
            y=_height(group.ours.mean),
            low=_height(group.ours.low),
            high=_height(group.ours.high),
            name=f"{across(group.cell):g}",
            ours=group.ours,
            bound=group.bound.mean,
            published=_published(group.cell),
        )
        for group in sorted(members, key=lambda group: across(group.cell))
    )
    return Line(
        method=method,
        kind=method.split("-", maxsplit=1)[0].lower(),
        marks=marks,
        ours=_points((mark.x, mark.y) for mark in marks),
        bound=_points((mark.x, _height(mark.bound)) for mark in marks),
        published=_points(
            (mark.x, _height(mark.published)) for mark in marks if mark.published is not None
        ),
    )


def _height(rate: float) -> float:
    return round(HEIGHT * (1 - rate), 2)


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in pairs)


def _published(cell: Cell) -> float | None:
    """The paper's rate for a cell with its parameters."""
    is_papers = (
        cell.dataset in STANDARD
        and (cell.neurons, cell.tail, cell.dtype, cell.noise) == (1000, (), "float64", 0.0)
        and cell.scale in {None, 0.99}
        and cell.soliton in {None, (0.05, 0.4)}
        and cell.init in {None, "paper"}
    )
    if not is_papers:
        return None
    key = (STANDARD[cell.dataset].title, cell.method, cell.batch_size)
    return published_rates().get(key)
