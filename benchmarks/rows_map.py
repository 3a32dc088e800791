"""A picture of where the row cascade stops, from what `benchmarks.rows --suite limits` wrote.

python -m benchmarks.rows_map row-limits.csv --out rows_map.png
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.cells import read_rows
from benchmarks.row_suites import SETTINGS, SHARES
from benchmarks.rows import Row
from gradpeel.datasets.standard import STANDARD
from gradpeel.reporting.style import heading, new_figure, place_axes, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE, COLUMN = 0.3, 0.68
"""Height and width of an entry, in inches."""
LABELS, BETWEEN = 2.6, 2.0
"""Room for the labels of the left panel, and for those of the right one, in inches."""

Shares = tuple[float, float]
"""What is recovered, and what can be read; NaN for no audit."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, default=Path("rows_map.png"))
    given = parser.parse_args()
    given.out.write_bytes(draw(read_rows(given.rows, Row)))
    print(given.out)


def draw(rows: Iterable[Row]) -> bytes:
    """The picture, as the bytes of a PNG file."""
    rows = list(rows)
    # HARUS has the other settings only.
    sizes = [
        row
        for row in rows
        if (row.setting, row.dtype) == ("plain", "float64") and row.dataset != "harus"
    ]
    widths = sorted({(row.dataset, row.neurons) for row in sizes}, key=_order)
    left = [
        [_shares(row for row in sizes if _place(row) == (*line, share)) for share in SHARES]
        for line in widths
    ]
    cases = sorted({(row.dataset, row.dtype) for row in rows if row.setting != "plain"})
    right = [
        [
            _shares(row for row in rows if (row.dataset, row.dtype, row.setting) == (*case, name))
            for case in cases
        ]
        for name in SETTINGS
        if name != "plain"
    ]
    height = LINE * max(len(left), len(right))
    start = LABELS + COLUMN * len(SHARES) + BETWEEN
    figure = new_figure(start + COLUMN * len(cases) + 0.2, height + 1.35)
    heading(
        figure,
        "Where the row cascade stops",
        "Share of the batch that is recovered with a certificate; in brackets, what can be read "
        "without one. Standardised inputs, PyTorch's start; no neuron isolates a sample.",
    )
    _panel(
        figure,
        LABELS,
        left,
        lines=[_words(name, neurons) for name, neurons in widths],
        columns=[f"{share:.0%}" for share in SHARES],
        title="samples in the batch, relative to the neurons N (float64)",
    )
    _panel(
        figure,
        start,
        right,
        lines=[name for name in SETTINGS if name != "plain"],
        columns=[f"{STANDARD[name].title}\n{dtype}" for name, dtype in cases],
        title="64 samples, N = 1,000",
    )
    return png(figure)


def _place(row: Row) -> tuple[str, int, float]:
    """The entry of the left panel that an audit belongs to."""
    nearest = min(SHARES, key=lambda share: abs(share - row.batch_size / row.neurons))
    return row.dataset, row.neurons, nearest


def _words(dataset: str, neurons: int) -> str:
    known = STANDARD[dataset]
    # Its usual subsets have fewer classes.
    classes = "200 or more" if dataset == "imagenet" else known.classes
    return f"{known.title}, {classes} classes, N = {neurons:,}"


def _order(line: tuple[str, int]) -> tuple[int, int, int]:
    dataset, neurons = line
    return STANDARD[dataset].classes, [*STANDARD].index(dataset), neurons


def _shares(rows: Iterable[Row]) -> Shares:
    """Means over some audits."""
    some = list(rows)
    if not some:
        return math.nan, math.nan
    return (
        fmean(row.recovered / row.batch_size for row in some),
        fmean(row.readable / row.batch_size for row in some),
    )


def _panel(
    figure: Figure,
    left: float,
    values: list[list[Shares]],
    *,
    lines: list[str],
    columns: list[str],
    title: str,
) -> None:
    """A heat map with its numbers."""
    axes = place_axes(figure, left, 0.75, COLUMN * len(columns), LINE * len(lines))
    recovered = [[entry[0] for entry in entries] for entries in values]
    axes.imshow(recovered, cmap="Oranges", vmin=0.0, vmax=1.25, aspect="auto")
    for line, entries in enumerate(values):
        for column, (value, read) in enumerate(entries):
            if not math.isnan(value):
                words = f"{value:.2f}" if read - value < 0.005 else f"{value:.2f} ({read:.2f})"
                axes.text(column, line, words, ha="center", va="center", size=8)
    axes.set_xticks(range(len(columns)), columns, size=8)
    axes.set_yticks(range(len(lines)), lines, size=8)
    axes.tick_params(length=0)
    axes.set_xlabel(title, size=9)


if __name__ == "__main__":
    main()
