"""Recovery against the oracle and the paper's table, on the real data sets.

    python -m benchmarks.recovery --data-dir DIR --out recovery.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. Every cell (data set, method,
batch size, seed) is a pure function of its name. Rows are appended as they come, so an interrupted
run goes on where it stopped; delete the file to start over, and give every width and version of
the code its own.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import gradpeel as gp
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.designs import PAPER_METHODS
from gradpeel.networks import mlp
from gradpeel.paper import DATASET_TITLES, published_rates
from gradpeel.scoring import Outcome

METHODS = tuple(PAPER_METHODS)
BATCH_SIZES = (64, 128, 256, 512, 1024)


@dataclass(frozen=True, order=True)
class Cell:
    """One audit of the comparison."""

    dataset: str
    method: str
    batch_size: int
    seed: int


@dataclass(frozen=True)
class Row:
    """What one audit measured."""

    dataset: str
    method: str
    batch_size: int
    seed: int
    recovered: int
    reachable: int
    faint: int
    inexact: int
    hidden: int
    missed: int
    beyond_oracle: int
    false_certificates: int
    repeats: int
    wrong_labels: int
    baseline_rate: float
    max_abs_error: float
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(self.dataset, self.method, self.batch_size, self.seed)

    @property
    def rate(self) -> float:
        """Share of the batch recovered."""
        return self.recovered / self.batch_size

    @property
    def oracle_rate(self) -> float:
        """Share of the batch that peeling the activation grid reaches."""
        return self.reachable / self.batch_size


@cache
def _load(path: Path) -> Dataset:
    return load(path)


def measure(cell: Cell, data_dir: Path, neurons: int) -> Row:
    """Run one cell: the first B training samples, the paper's network and design, float64."""
    dataset = _load(data_dir / f"{cell.dataset}.npz")
    batch = draw_batch(dataset, cell.batch_size)
    network = mlp(
        dataset.features,
        dataset.classes,
        hidden=(neurons,),
        rng=np.random.default_rng([cell.seed, 0]),
        sample_shape=dataset.sample_shape,
    )
    design = PAPER_METHODS[cell.method](batch.auxiliary)
    audit = gp.audit(network, batch.x, batch.y, design=design, seed=cell.seed)
    score, reached = audit.score, audit.exposure.reached
    recovered = [outcome is Outcome.RECOVERED for outcome in score.outcomes]
    matched = score.matches >= 0
    return Row(
        **asdict(cell),
        recovered=score.recovered,
        reachable=int(reached.sum()),
        faint=score.outcomes.count(Outcome.FAINT),
        inexact=score.outcomes.count(Outcome.INEXACT),
        hidden=score.outcomes.count(Outcome.HIDDEN),
        missed=score.outcomes.count(Outcome.MISSED),
        beyond_oracle=sum(was and not could for was, could in zip(recovered, reached, strict=True)),
        false_certificates=score.false_certificates,
        repeats=score.repeats,
        wrong_labels=int((~score.labels_right[matched]).sum()),
        baseline_rate=score.baseline_rate,
        max_abs_error=score.max_abs_error or 0.0,
        seconds=audit.seconds,
    )


def run(
    cells: Iterable[Cell], data_dir: Path, out: Path, *, neurons: int, workers: int
) -> list[Row]:
    """Measure the cells that `out` does not hold yet, appending each; returns all of them."""
    wanted = sorted(set(cells))
    _mend(out)
    done = {row.cell: row for row in _read(out)}
    todo = [cell for cell in wanted if cell not in done]
    # One thread a worker: cells are the parallelism. A forked worker would inherit torch's pool.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(measure, cell, data_dir, neurons) for cell in todo]
        console = Console(stderr=True)
        try:
            for future in track(
                as_completed(futures),
                "cells",
                total=len(futures),
                console=console,
                disable=not console.is_terminal,
            ):
                row = future.result()
                done[row.cell] = row
                _append(out, row)
                if not console.is_terminal:
                    print(f"{len(done)}/{len(wanted)} {row.cell} {row.rate:.3f}", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[cell] for cell in wanted]


def _mend(out: Path) -> None:
    """Cut off a last line that a kill left unfinished; its cell is measured again."""
    if out.exists():
        text = out.read_bytes()
        out.write_bytes(text[: text.rfind(b"\n") + 1])


def _read(out: Path) -> Iterator[Row]:
    if not out.exists():
        return
    kinds = {"str": str, "int": int, "float": float}
    with out.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            yield Row(
                **{field.name: kinds[str(field.type)](line[field.name]) for field in fields(Row)}
            )


def _append(out: Path, row: Row) -> None:
    new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


@dataclass(frozen=True)
class Line:
    """One data set and method of the table: rates by batch size, mean over seeds."""

    title: str
    method: str
    rates: dict[int, tuple[float, float, float | None]]

    @property
    def gap(self) -> float:
        """Mean over batch sizes of ours less the paper's."""
        gaps = [ours - paper for ours, _, paper in self.rates.values() if paper is not None]
        return fmean(gaps) if gaps else 0.0

    def cells(self, sizes: list[int]) -> list[str]:
        """The line as text: ours, oracle, paper for each batch size, and the mean gap."""
        return [
            self.title,
            self.method,
            *(" ".join(_rate(rate) for rate in self.rates[size]) for size in sizes),
            f"{self.gap:+.3f}",
        ]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"


def tabulate(rows: list[Row]) -> list[Line]:
    """Means over seeds beside the paper's values."""
    published = published_rates()
    grouped: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        grouped.setdefault((row.dataset, row.method), {}).setdefault(row.batch_size, []).append(row)
    return [
        Line(
            DATASET_TITLES[dataset],
            method,
            {
                size: (
                    fmean(row.rate for row in group),
                    fmean(row.oracle_rate for row in group),
                    published.get((DATASET_TITLES[dataset], method, size)),
                )
                for size, group in by_size.items()
            },
        )
        for (dataset, method), by_size in grouped.items()
    ]


def header(rows: list[Row]) -> tuple[list[int], list[str]]:
    """Batch sizes, and the titles of the table's columns."""
    sizes = sorted({row.batch_size for row in rows})
    return sizes, ["data set", "method", *(f"B={size}" for size in sizes), "ours - paper"]


def findings(rows: list[Row]) -> list[str]:
    """What the cells say together, a line each."""
    equal = sum(row.recovered == row.reachable and not row.beyond_oracle for row in rows)
    beyond = sum(row.beyond_oracle > 0 for row in rows)
    short = [row for row in rows if row.rate < row.oracle_rate - 0.01]
    slowest = max(rows, key=lambda row: row.seconds)
    behind = [line for line in tabulate(rows) if line.gap < -0.05]
    return [
        f"cells: {len(rows)}, samples certified: {sum(row.recovered for row in rows)}",
        *(f"{name}: {count}" for name, count in faults(rows).items()),
        f"equal to the oracle: {equal} of {len(rows)} cells ({equal / len(rows):.1%})",
        f"beyond it, because a sample without gradient hides nobody: {beyond} cells",
        f"more than 0.01 below it: {len(short)} cells",
        *(
            f"  {row.dataset} {row.method} B={row.batch_size} seed {row.seed}: {row.recovered} of "
            f"{row.reachable} reachable, {row.faint} faint, {row.inexact} inexact, "
            f"{row.hidden} hidden, {row.missed} missed"
            for row in short
        ),
        f"largest absolute error of a recovered sample: {max(r.max_abs_error for r in rows):.1e}",
        f"lines with a mean more than 0.05 below the paper's: {len(behind)}",
        *(f"  {line.title} {line.method}: {line.gap:+.3f}" for line in behind),
        f"seconds of a peel on one thread: mean {fmean(row.seconds for row in rows):.2f}",
        f"  worst {slowest.seconds:.2f}, {slowest.cell}",
    ]


def faults(rows: list[Row]) -> dict[str, int]:
    """What must not happen, counted."""
    return {
        "false certificates": sum(row.false_certificates for row in rows),
        "repeats": sum(row.repeats for row in rows),
        "wrong labels": sum(row.wrong_labels for row in rows),
    }


def show(rows: list[Row], console: Console) -> None:
    """Print the comparison."""
    sizes, titles = header(rows)
    table = Table(*titles, title="recovery rate: ours, oracle, paper; mean over seeds")
    for line in tabulate(rows):
        table.add_row(*line.cells(sizes))
    console.print(table)
    for finding in findings(rows):
        console.print(finding, highlight=False)


def markdown(rows: list[Row]) -> str:
    """The comparison for the documentation."""
    sizes, titles = header(rows)
    lines = [titles, ["---"] * len(titles), *(line.cells(sizes) for line in tabulate(rows))]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    found = "\n".join(findings(rows))
    return f"```text\n{found}\n```\n\nEach cell: ours, oracle, paper.\n\n{table}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, help="also write the comparison to this file")
    parser.add_argument("--out", type=Path, default=Path("recovery.csv"))
    parser.add_argument("--datasets", default=",".join(DATASET_TITLES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--neurons", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    cells = [
        Cell(dataset, method, int(size), seed)
        for dataset, method, size, seed in itertools.product(
            given.datasets.split(","),
            given.methods.split(","),
            given.batch_sizes.split(","),
            range(given.seeds),
        )
    ]
    try:
        rows = run(cells, given.data_dir, given.out, neurons=given.neurons, workers=given.workers)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {given.out} holds what is done")
    # A table this wide would be cut at the 80 columns of a pipe.
    show(rows, Console() if sys.stdout.isatty() else Console(width=150))
    if given.markdown is not None:
        given.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(1 if any(faults(rows).values()) else 0)


if __name__ == "__main__":
    main()
