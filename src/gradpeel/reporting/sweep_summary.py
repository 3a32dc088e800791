"""What a sweep found, for the terminal: first in a sentence, then as a table."""

from __future__ import annotations

from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from gradpeel.reporting.page.sweep_words import lead
from gradpeel.reporting.words import counted, printable
from gradpeel.sweeps import Results
from gradpeel.sweeps.summary import Group, over_seeds

__all__ = ["sweep_summary"]

MOST_FAILURES = 10


def sweep_summary(results: Results) -> Lines:
    """What was recovered and what peeling can reach, one line per batch size, and what failed."""
    groups = over_seeds(results.rows)
    parts: list[Table | Text] = [Text(lead(groups), style="bold"), Text("")]
    parts += [_table(groups)] if groups else []
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


def _table(groups: list[Group]) -> Table:
    table = Table(
        title="Share of the batch recovered: mean over seeds and 95 % interval",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("data set", "method", "setting"):
        table.add_column(name, overflow="fold", no_wrap=name == "method")
    for name in ("batch", "recovered", "interval", "bound", "direct"):
        table.add_column(name, justify="right", no_wrap=True)
    above: tuple[str, ...] = ()
    for group in groups:
        cell = group.cell
        labels = (cell.dataset, cell.method, cell.variant)
        if above and labels != above:
            table.add_section()
        shown = ("", "", "") if labels == above else labels
        above = labels
        table.add_row(
            *(Text(printable(label)) for label in shown),
            str(cell.batch_size),
            Text(f"{group.ours.mean:.3f}", style="bold"),
            f"{group.ours.low:.3f}-{group.ours.high:.3f}" if group.ours.count > 1 else "",
            f"{group.bound.mean:.3f}",
            f"{group.baseline.mean:.3f}",
        )
    return table
