"""Totals by family, and everything that is wrong, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.adversary.families import FAMILIES
from benchmarks.adversary.measuring import Row
from benchmarks.cells import markdown_table

__all__ = ["TITLES", "faults", "findings", "markdown", "tabulate", "tally"]

TITLES = (
    "family",
    "rounds",
    "certified",
    "false",
    "other faults",
    "inexact",
    "reachable by peeling",
    "recovered of these, float64",
    "float32",
    "seen at a single look",
    "CPU seconds per round",
)

FAULTS = {
    "false": "false certificates",
    "wrong_labels": "wrong labels",
    "wrong_copies": "wrong numbers of copies",
    "repeats": "samples certified twice",
    "beyond": "samples in excess of the batch",
    "wrong_complete": "wrong claims to be complete",
    "wrong_size": "wrong batch sizes",
}
"""The columns of a row that must be 0, and what they count."""

RECALLED = ("one class", "label skew")
"""The families whose recall is reported by dtype."""


def faults(rows: Iterable[Row]) -> dict[str, int]:
    """What must not happen, counted; rounds that nobody can decide are left out."""
    return _counted(_decidable(rows))


def _decidable(rows: Iterable[Row]) -> list[Row]:
    """The rounds that count."""
    return [row for row in rows if not FAMILIES[row.family].undecidable]


def _counted(some: list[Row]) -> dict[str, int]:
    counts = {name: sum(int(getattr(row, name)) for row in some) for name in FAULTS}
    return counts | {"errors": sum(bool(row.error) for row in some)}


def tally(rows: list[Row]) -> str:
    """The state of a run in a few words."""
    some = _decidable(rows)
    certified, wrong = sum(row.certified for row in some), sum(bool(row.wrong) for row in some)
    return f"{certified:,} certificates, rounds with a fault: {wrong:,}"


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table, one per family, and the total."""
    for name in dict.fromkeys(row.family for row in rows):
        shown = f"{name} (not counted)" if FAMILIES[name].undecidable else name
        yield _line(shown, [row for row in rows if row.family == name])
    if counted := _decidable(rows):
        yield _line("all", counted)


def _line(name: str, rows: list[Row]) -> list[str]:
    counts = _counted(rows)
    return [
        name,
        f"{len(rows):,}",
        f"{sum(row.certified for row in rows):,}",
        f"{counts['false']:,}",
        f"{sum(counts.values()) - counts['false']:,}",
        f"{sum(row.inexact for row in rows):,}",
        f"{sum(row.bound for row in rows):,}",
        _share([row for row in rows if row.dtype == "float64"]),
        _share([row for row in rows if row.dtype == "float32"]),
        _share(rows, of="single_look"),
        f"{sum(row.seconds for row in rows) / len(rows):.2f}",
    ]


def _share(rows: list[Row], of: str = "recovered") -> str:
    """Samples found, relative to the peeling bound; no round counts beyond its own."""
    bound = sum(row.bound for row in rows)
    found = sum(min(int(getattr(row, of)), row.bound) for row in rows)
    return f"{100 * found / bound:.1f} %" if bound else "-"


def findings(rows: list[Row]) -> Iterator[str]:
    """The totals in words, recall, then one line per round in which something is wrong."""
    some = _decidable(rows)
    yield f"rounds: {len(some):,}"
    yield f"certificates: {sum(row.certified for row in some):,}"
    for name, count in faults(rows).items():
        yield f"{FAULTS.get(name, name)}: {count:,}"
    yield from _recall(rows)
    yield from (f"{row.cell}: {row.wrong}" for row in some if row.wrong)
    uncounted = sum(bool(row.wrong) for row in rows) - sum(bool(row.wrong) for row in some)
    if uncounted:
        yield f"rounds with a fault that nobody can decide, not counted: {uncounted:,}"


def _recall(rows: list[Row]) -> Iterator[str]:
    """How much of what peeling reaches is recovered, where the batch is not too large for it."""
    for family in RECALLED:
        for dtype in FAMILIES[family].dtypes:
            some = [
                row
                for row in rows
                if (row.family, row.dtype) == (family, dtype)
                and row.batch < min(row.neurons, row.features)
            ]
            if some:
                yield (
                    f"recall, {family}, {dtype}: {_share(some)} of the "
                    f"{sum(row.bound for row in some):,} samples that peeling can reach in "
                    f"{len(some):,} batches smaller than neurons and features"
                )


def markdown(rows: list[Row]) -> str:
    """The same for the documentation."""
    some = _decidable(rows)
    wrong = sum(faults(rows).values())
    verdict = f"Faults in all: {wrong:,}." if wrong else "Nothing that was claimed is wrong."
    found = "\n".join(findings(rows))
    return (
        "# Adversary's table\n\n"
        "Written by `python -m benchmarks.adversary --data-dir DATA --out docs/adversary.csv "
        "--markdown docs/adversary-table.md`; the families are explained in "
        "[adversary.md](adversary.md).\n\n"
        f"In {len(some):,} rounds the decoder certified "
        f"{sum(row.certified for row in some):,} samples. {verdict}\n\n"
        "- *False*: certified samples that are not in the batch. *Other faults*: wrong labels, "
        "numbers of copies, batch sizes and claims to be complete, samples certified twice or in "
        "excess of the batch, and errors. *Inexact*: neither right nor false.\n"
        "- *Reachable by peeling*: samples that peeling the activation grid reaches. The next "
        "three columns are shares of these.\n\n"
        f"{markdown_table(TITLES, tabulate(rows))}\n```text\n{found}\n```\n"
    )
