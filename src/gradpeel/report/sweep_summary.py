"""What a sweep found, as a table for the terminal."""

from __future__ import annotations

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from gradpeel.report.words import counted, printable
from gradpeel.sweeps import Results
from gradpeel.sweeps.summary import Estimate, Group, over_seeds

__all__ = ["sweep_summary"]

MOST_FAILURES = 10


def sweep_summary(results: Results) -> Lines:
    """Mean recovery over seeds by batch size, what peeling can reach below it, and what failed."""
    groups = over_seeds(results.rows)
    parts: list[Table | Text] = [_table(groups)] if groups else []
    false = sum(row.measurement.false_certificates for row in results.rows if row.measurement)
    parts.append(Text(f"{counted(len(results.rows), 'cell')} measured, {false} false certificates"))
    parts += [Text(f"{name}: {note}") for name, note in results.notes.items()]
    if results.failures:
        parts.append(Text(f"{counted(len(results.failures), 'cell')} failed:", style="bold"))
        parts += [Text(f"  {printable(str(one), 200)}") for one in results.failures[:MOST_FAILURES]]
        rest = len(results.failures) - MOST_FAILURES
        if rest > 0:
            parts.append(Text(f"  and {rest} more"))
    return Lines(*parts)


def _table(groups: list[Group]) -> Table:
    sizes = sorted({group.cell.batch_size for group in groups})
    lines: dict[tuple[str, str, str], dict[int, Group]] = {}
    for group in groups:
        cell = group.cell
        lines.setdefault((cell.dataset, cell.method, cell.variant), {})[cell.batch_size] = group
    table = Table(title="share of the batch recovered, mean over seeds; below it the oracle")
    for name in ("data set", "method", "setting"):
        table.add_column(name, overflow="fold")
    for size in sizes:
        table.add_column(f"B={size}", justify="right", no_wrap=True)
    for labels, by_size in lines.items():
        rates = [_rate(by_size[size]) if size in by_size else Text("-") for size in sizes]
        table.add_row(*(Text(printable(label)) for label in labels), *rates)
    return table


def _rate(group: Group) -> Text:
    return Text.assemble(
        (f"{group.ours.mean:.3f}", "bold"),
        _reach(group.ours),
        "\n",
        (f"{group.oracle.mean:.3f}", "dim"),
    )


def _reach(one: Estimate) -> str:
    return f" ±{(one.high - one.low) / 2:.3f}" if one.count > 1 and one.high > one.low else ""
