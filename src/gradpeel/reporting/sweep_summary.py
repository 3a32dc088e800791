"""What a sweep found, for the terminal: first in a sentence, then as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from gradpeel.reporting.page.sweep_words import dataset_name, lead, method_name, setting_name
from gradpeel.reporting.words import counted, percent, printable
from gradpeel.sweeps import Results
from gradpeel.sweeps.summary import Group, over_seeds

__all__ = ["sweep_summary"]

MOST_FAILURES = 10


def sweep_summary(results: Results) -> Lines:
    """What was recovered and what peeling can reach, one table per setting, and what failed."""
    groups = over_seeds(results.rows)
    parts: list[Table | Text] = [Text(lead(groups), style="bold"), Text("")]
    if groups:
        parts.append(Text("Share of the batch recovered: mean over seeds and 95 % interval"))
        parts += _tables(groups)
    false = sum(row.measurement.false_certificates for row in results.rows if row.measurement)
    parts.append(
        Text(
            f"{counted(len(results.rows), 'audit')} measured, {counted(false, 'false certificate')}"
        )
    )
    parts += [Text(f"{name}: {note}") for name, note in results.notes.items()]
    if results.failures:
        parts.append(Text(f"{counted(len(results.failures), 'audit')} failed:", style="bold"))
        parts += [Text(f"  {printable(str(one), 200)}") for one in results.failures[:MOST_FAILURES]]
        rest = len(results.failures) - MOST_FAILURES
        if rest > 0:
            parts.append(Text(f"  and {rest} more"))
    return Lines(*parts)


def _tables(groups: list[Group]) -> Iterator[Table | Text]:
    """A table for each data set and setting, under a line that names them."""
    settings: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        key = dataset_name(group.cell), setting_name(group.cell)
        settings.setdefault(key, []).append(group)
    for names, members in settings.items():
        yield Text(", ".join(names), style="bold")
        yield _table(members)


def _table(groups: list[Group]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method")
    for name in ("batch", "recovered", "interval", "bound", "direct"):
        table.add_column(name, justify="right", no_wrap=True)
    above = ""
    for group in groups:
        method, ours = method_name(group.cell), group.ours
        if above and method != above:
            table.add_section()
        table.add_row(
            "" if method == above else Text(method),
            f"{group.cell.batch_size:,}",
            Text(percent(ours.mean), style="bold"),
            f"{percent(ours.low)} to {percent(ours.high)}" if ours.count > 1 else "",
            percent(group.bound.mean),
            percent(group.baseline.mean),
        )
        above = method
    return table
