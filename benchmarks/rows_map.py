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

LINE, COLUMN = 0.27, 0.62
"""Height and width of an entry, in inches."""


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
        [_share(row for row in sizes if _place(row) == (*line, share)) for share in SHARES]
        for line in widths
    ]
    cases = sorted({(row.dataset, row.dtype) for row in rows if row.setting != "plain"})
    right = [
        [
            _share(row for row in rows if (row.dataset, row.dtype, row.setting) == (*case, name))
            for case in cases
        ]
        for name in SETTINGS
        if name != "plain"
    ]
    height = LINE * max(len(left), len(right))
    figure = new_figure(12.4, height + 1.35)
    heading(
        figure,
        "Where the row cascade stops",
        "Share of the batch that is recovered with a certificate. Standardised inputs, PyTorch's "
        "start; no neuron isolates a sample.",
    )
    _panel(
        figure,
        2.6,
        left,
        lines=[_words(name, neurons) for name, neurons in widths],
        columns=[f"{share:.0%}" for share in SHARES],
        title="samples in the batch, relative to the neurons N (float64)",
    )
    _panel(
        figure,
        8.5,
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
    return f"{known.title}, {known.classes} classes, N = {neurons:,}"


def _order(line: tuple[str, int]) -> tuple[int, int, int]:
    dataset, neurons = line
    return STANDARD[dataset].classes, [*STANDARD].index(dataset), neurons


def _share(rows: Iterable[Row]) -> float:
    """Share of all samples that were recovered; NaN for no audit."""
    shares = [row.recovered / row.batch_size for row in rows]
    return fmean(shares) if shares else float("nan")


def _panel(
    figure: Figure,
    left: float,
    values: list[list[float]],
    *,
    lines: list[str],
    columns: list[str],
    title: str,
) -> None:
    """A heat map with its numbers."""
    axes = place_axes(figure, left, 0.75, COLUMN * len(columns), LINE * len(lines))
    axes.imshow(values, cmap="Oranges", vmin=0.0, vmax=1.25, aspect="auto")
    for line, entries in enumerate(values):
        for column, value in enumerate(entries):
            if not math.isnan(value):
                axes.text(column, line, f"{value:.2f}", ha="center", va="center", size=8)
    axes.set_xticks(range(len(columns)), columns, size=8)
    axes.set_yticks(range(len(lines)), lines, size=8)
    axes.tick_params(length=0)
    axes.set_xlabel(title, size=9)


if __name__ == "__main__":
    main()
