"""Bars for the terminal: samples recovered per round, and how often each label occurs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

__all__ = ["label_bars", "round_bars"]

WIDTH = 32
MOST_ROWS = 15


@dataclass(frozen=True)
class _Bar:
    """A horizontal bar, `share` of `WIDTH` long; anything above zero is visible."""

    share: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        eighths = math.ceil(self.share * WIDTH * 8)
        if options.ascii_only:
            drawn = "#" * math.ceil(eighths / 8)
        else:
            drawn = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        yield Segment(drawn.ljust(WIDTH), Style(color="cyan"))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        del console, options
        return Measurement(WIDTH, WIDTH)


def round_bars(counts: Sequence[int]) -> Table:
    """One bar for each round of a cascade; rounds are taken together where they are too many.

    Args:
        counts: samples certified in round 1, 2, ...
    """
    step = max(1, math.ceil(len(counts) / MOST_ROWS))
    rows: list[tuple[str, int]] = []
    for first in range(0, len(counts), step):
        group = counts[first : first + step]
        last = first + len(group)
        name = f"round {last}" if len(group) == 1 else f"rounds {first + 1}-{last}"
        rows.append((name, sum(group)))
    return _bar_table(rows)


def label_bars(counts: Sequence[int]) -> Table:
    """One bar for each label that occurs; of many labels, the most frequent.

    Args:
        counts: how often label 0, 1, ... occurs.
    """
    present = [label for label, count in enumerate(counts) if count]
    shown = sorted(sorted(present, key=lambda label: -counts[label])[:MOST_ROWS])
    rows = [(f"label {label}", counts[label]) for label in shown]
    rest = len(present) - len(shown)
    if rest:
        others = sum(counts) - sum(counts[label] for label in shown)
        rows.append((f"{rest} other labels", others))
    return _bar_table(rows)


def _bar_table(rows: Iterable[tuple[str, int]]) -> Table:
    """Names, bars and counts, one to a line."""
    rows = list(rows)
    longest = max((count for _, count in rows), default=0) or 1
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    for name, count in rows:
        table.add_row(Text(name), _Bar(count / longest), Text(str(count), style="bold"))
    return table
