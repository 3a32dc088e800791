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

from gradpeel.reporting.words import counted

__all__ = ["LabelLine", "round_bars"]

WIDTH = 32
MOST_ROWS = 15
MOST_LABELS = 12
EIGHTHS = "▁▂▃▄▅▆▇█"


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


@dataclass(frozen=True)
class LabelLine:
    """How often each label occurs, in one line; of many labels, the most frequent.

    Attributes:
        counts: how often label 0, 1, ... occurs.

    Example:
        >>> Console(width=40).print(LabelLine([8, 0, 4, 1]))
        0 █8  2 ▄4  3 ▁1
        >>> Console(width=60).print(LabelLine([0] * 7 + [3] * 20))
        7 █3  8 █3  9 █3  10 █3  11 █3  12 █3  and 14 other labels
    """

    counts: Sequence[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        present = [label for label, count in enumerate(self.counts) if count]
        line = Text()
        for most in range(min(len(present), MOST_LABELS), 0, -1):
            shown = sorted(sorted(present, key=lambda label: -self.counts[label])[:most])
            entries = [self._entry(label, ascii_only=options.ascii_only) for label in shown]
            if most < len(present):
                entries.append(Text(f"and {counted(len(present) - most, 'other label')}", "dim"))
            line = Text("  ", no_wrap=True).join(entries)
            if line.cell_len <= options.max_width:
                break
        yield line

    def _entry(self, label: int, *, ascii_only: bool) -> Text:
        height = math.ceil(8 * self.counts[label] / max(self.counts))
        bar = ": " if ascii_only else f" {EIGHTHS[height - 1]}"
        count = f"{self.counts[label]:,}"
        return Text.assemble((str(label), "dim"), (bar, "cyan"), (count, "bold"))


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
