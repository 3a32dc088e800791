"""What a person reads after `gradpeel audit --repeats` or `--checkpoints`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.audits import Audits, TrainingCurve
from gradpeel.reporting.layout import facts, headed, panel
from gradpeel.reporting.spread_words import (
    measures,
    spread_facts,
    verdict_of,
    worst_case,
)
from gradpeel.reporting.words import percent, printable

__all__ = ["spread_summary"]


def spread_summary(found: Audits | TrainingCurve, *, data: str) -> RenderableType:
    """The verdict over all repeats, the spread of what was measured, and its limits.

    Args:
        found: the audits.
        data: what the data is called.
    """
    if isinstance(found, TrainingCurve):
        part = headed("By training step", _by_step(found))
    else:
        part = headed("Share of the batch", _spread(found))
    return panel(
        f"gradpeel audit: {printable(data)}",
        [
            Text(verdict_of(found), style="bold red" if found.worst.score.read else "bold yellow"),
            part,
            facts([*spread_facts(found), ("Worst case", worst_case(found))]),
        ],
    )


def _spread(found: Audits) -> Table:
    rows = [
        (one.name, *map(percent, (one.shares.least, one.shares.median, one.shares.most)))
        for one in measures(found)
    ]
    return _table(("", "least", "median", "most"), rows)


def _by_step(curve: TrainingCurve) -> Table:
    """The medians and, of what can be read, the ends where they differ."""
    is_spread = any(len(audits) > 1 for audits in curve.at)
    rows = []
    for step, audits in zip(curve.steps, curve.at, strict=True):
        found = measures(audits)
        ends = found[0].shares
        between = [f"{percent(ends.least)} to {percent(ends.most)}"] if is_spread else []
        first, *others = [percent(one.shares.median) for one in found]
        rows.append([f"{step:,}", first, *between, *others])
    names = [one.name for one in measures(curve[0])]
    return _table(["step", names[0], *["least to most"] * is_spread, *names[1:]], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in head[1:]:
        table.add_column(justify="right")
    table.add_row(*(Text(name, style="dim") for name in head))
    for row in rows:
        # A name may take two lines, a number may not.
        table.add_row(*(Text(cell.replace(" ", "\N{NO-BREAK SPACE}")) for cell in row))
    return table
