"""Measure what a peel costs: see `benchmarks.speed`."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import speed
from benchmarks.cells import markdown_table, run
from benchmarks.speed import BY_BATCH, BY_FEATURES, BY_NEURONS, CASES, GOALS, Case, Row
from gradpeel.reporting.style import BLUE, GREY, VERMILLION, heading, new_figure, png

GREEN = "#009E73"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=speed.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("speed.csv"))
    parser.add_argument("--markdown", type=Path, help="write the table here too")
    parser.add_argument("--plot", type=Path, help="write the plot here, .png")
    parser.add_argument("--only", choices=["all", "goals"], default="all")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--reference", type=float, default=600.0, help="seconds the paper's loop may take"
    )
    given = parser.parse_args()
    work = partial(
        speed.measure, data_dir=given.data_dir, repeat=given.repeat, reference=given.reference
    )
    cases = GOALS if given.only == "goals" else CASES
    rows = run(cases, work, given.out, Row, workers=1, fresh=True)
    table = _table(rows)
    print(table, end="")
    print(f"on {_machine()}, one thread")
    if given.markdown is not None:
        given.markdown.write_text(f"# Speed table\n\n{table}", encoding="utf-8")
    if given.plot is not None:
        _plot(rows, given.plot)


def _machine() -> str:
    """The class of machine, without its name."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"


def _table(rows: Sequence[Row]) -> str:
    return markdown_table(
        [
            "features",
            "neurons",
            "batch",
            "tail",
            "dtype",
            "recovered / reachable",
            "rounds",
            "peel (s)",
            "product (s)",
            "peel / product",
            "single pass / product",
            "paper's loop / peel",
            "memory / update",
            "design (s)",
            "grid peel (ms)",
        ],
        [
            [
                str(row.features),
                str(row.neurons),
                str(row.batch_size),
                row.tail,
                row.dtype,
                f"{row.recovered} / {row.reachable}",
                str(row.rounds),
                f"{row.peel:.3f}",
                f"{row.floor64:.3f}",
                f"{row.ratio:.2f}",
                f"{row.single_pass / row.floor64:.2f}",
                _speedup(row.speedup),
                f"{row.memory_ratio:.2f}",
                f"{row.design:.2f}",
                f"{1e3 * row.grid_peel:.2f}",
            ]
            for row in rows
        ],
    )


def _speedup(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value > 0 else f"> {-value:.0f}"


def _plot(rows: Sequence[Row], path: Path) -> None:
    """Cost against batch size, neurons and features, on logarithmic scales."""
    by_case = {row.cell: row for row in rows}
    figure = new_figure(11.0, 4.2)
    heading(figure, "What a peel costs", "CPU seconds of one thread; CIFAR-10 and Tiny-ImageNet")
    axes = figure.subplots(1, 3, sharey=True)
    figure.subplots_adjust(left=0.06, right=0.99, top=0.82, bottom=0.14, wspace=0.05)
    lines: tuple[tuple[str, tuple[Case, ...]], ...] = (
        ("batch_size", BY_BATCH),
        ("neurons", BY_NEURONS),
        ("features", BY_FEATURES),
    )
    for panel, (what, cases) in zip(axes, lines, strict=True):
        found = [by_case[case] for case in cases if case in by_case]
        if not found:
            panel.set_axis_off()
            continue
        at = [getattr(row, what) for row in found]
        panel.loglog(at, [row.peel for row in found], "o-", color=VERMILLION, label="peel")
        panel.loglog(at, [row.single_pass for row in found], "^:", color=GREEN, label="single pass")
        panel.loglog(at, [row.floor64 for row in found], "s--", color=BLUE, label="product alone")
        ended = [(getattr(row, what), row.reference) for row in found if row.reference > 0]
        if ended:
            panel.loglog(*zip(*ended, strict=True), "D-.", color=GREY, label="the paper's loop")
        fixed = {"features": 3072, "neurons": 1000, "batch_size": found[0].batch_size}
        others = ", ".join(
            f"{name.replace('_', ' ')} {getattr(found[0], name)}" for name in fixed if name != what
        )
        panel.set_xlabel(f"{what.replace('_', ' ')} ({others})", size=9)
        panel.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
        panel.tick_params(labelsize=8)
        panel.minorticks_off()
        panel.set_xticks(at, [str(value) for value in at], size=7, rotation=30)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    axes[0].set_ylabel("seconds", size=9)
    # The first panel has all the lines, the last one has room.
    handles = axes[0].get_legend_handles_labels()
    axes[-1].legend(*handles, fontsize=8, frameon=False, loc="lower right")
    path.write_bytes(png(figure))


if __name__ == "__main__":
    main()
