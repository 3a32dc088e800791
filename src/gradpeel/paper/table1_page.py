"""The comparison with the paper's table as a page: a heat map in the shell of all reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gradpeel._version import __version__
from gradpeel.designs.options import PAPER_METHODS
from gradpeel.paper.table1 import Comparison, Line, Table1, Verdict
from gradpeel.reporting.methods import spelled
from gradpeel.reporting.page.shell import fill
from gradpeel.reporting.words import counted

__all__ = ["to_html"]

STRONGEST = 0.3
"""A difference that gets the full colour."""
SHADES = 6
"""Steps of colour for a difference."""
SIGNS: dict[Verdict | None, str] = {Verdict.BETTER: "▲ ", Verdict.WORSE: "▼ "}
NAMES = {
    f"{label}{'+Rows' * rows}": spelled(one.design, one.weights, rows=rows)
    for label, one in PAPER_METHODS.items()
    for rows in (False, True)
}


@dataclass(frozen=True)
class Heat:
    """One cell of the table, and the style classes of its colours."""

    cell: Comparison
    sign: str
    classes: str


def to_html(table: Table1) -> str:
    """A page of its own: the table as a heat map, nothing loaded from anywhere."""
    sizes = table.batch_sizes
    return fill(
        "table1.html.j2",
        styles=("table1.css",),
        verdict=_verdict(table),
        facts=list(table.totals().items()),
        sizes=sizes,
        blocks=[
            (title, [(NAMES[line.method], line, _heats(line, sizes)) for line in lines])
            for title, lines in table.by_dataset()
        ],
        findings=table.findings(),
        footnotes=table.footnotes(),
        differences=[(_signed(step / 10), _gap_class("gap", step / 10)) for step in range(-3, 4)],
        rates=[(f"{step / 5:.1f}", f"rate{2 * step}") for step in range(6)],
        made_with=__version__,
    )


def _signed(difference: float) -> str:
    return f"{difference:+.1f}".replace("-", "−") if difference else "0"


def _verdict(table: Table1) -> str:
    """How the cells compare with the published rates, in a sentence."""
    compared = [cell for cell in table.cells if cell.published is not None]
    judged = Counter(cell.verdict for cell in compared if cell.verdict is not None)
    if not compared:
        return f"{counted(len(table.cells), 'recovery rate')}, none with a published counterpart."
    if not judged:
        mean = sum(cell.gap or 0.0 for cell in compared) / len(compared)
        cells = counted(len(compared), "published rate")
        return f"Compared with {cells}, ours differ by {mean:+.3f} on average."
    return (
        f"Of {counted(judged.total(), 'published rate')}, {judged[Verdict.EQUAL]:,} lie within our "
        f"95 % interval; ours are higher in {counted(judged[Verdict.BETTER], 'cell')} and lower in "
        f"{counted(judged[Verdict.WORSE], 'cell')}."
    )


def _heats(line: Line, sizes: list[int]) -> list[Heat | None]:
    by_size = {cell.batch_size: cell for cell in line.cells}
    return [_heat(by_size[size]) if size in by_size else None for size in sizes]


def _heat(cell: Comparison) -> Heat:
    classes = (
        _gap_class("gap", cell.gap or 0.0),
        f"rate{round(10 * cell.ours.mean)}",
        _gap_class("miss", cell.ours.mean - cell.bound.mean),
    )
    return Heat(cell, SIGNS.get(cell.verdict, ""), " ".join(classes))


def _gap_class(kind: str, gap: float) -> str:
    """The shade of a difference: "gap6 gap-up" for the strongest above zero."""
    shade = round(SHADES * min(abs(gap) / STRONGEST, 1.0))
    return f"{kind}{shade} {kind}-{'up' if gap > 0 else 'down'}"
