"""Measuring many cells: in parallel, a line of a CSV file each, going on where it was stopped.

A *cell* names one measurement, a *row* holds it; both are frozen dataclasses of strings and
numbers. Every row is a pure function of its cell, so that it does not matter who measures it when.
"""

from __future__ import annotations

import csv
import multiprocessing
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from rich.console import Console
from rich.progress import track

from gradpeel.datasets import Dataset, load

__all__ = ["Row", "load_cached", "markdown_table", "run"]


class Row(Protocol):
    """What was measured of a cell; `str` gives it in a line."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cell(self) -> Hashable:
        """The cell this is the measurement of."""


CellT = TypeVar("CellT", bound=Hashable)
RowT = TypeVar("RowT", bound=Row)


def run(
    cells: Iterable[CellT],
    measure: Callable[[CellT], RowT],
    out: Path,
    kind: type[RowT],
    *,
    workers: int,
    fresh: bool = False,
) -> list[RowT]:
    """Measure the cells that `out` does not hold yet, appending each; returns all of them.

    Args:
        cells: what to measure, in this order.
        measure: how; it goes to other processes, so it must be a function of a module, or a
            partial of one.
        out: the CSV file; it may hold other cells too.
        kind: the class of its rows.
        workers: number of processes.
        fresh: give every cell a process of its own.
    """
    wanted = list(dict.fromkeys(cells))
    _mend(out)
    done: dict[Hashable, RowT] = {row.cell: row for row in _read(out, kind)}
    todo = [cell for cell in wanted if cell not in done]
    if not todo:
        return [done[cell] for cell in wanted]
    # One thread a worker: cells are the parallelism. A forked worker would inherit torch's pool.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers,
        context,
        torch.set_num_threads,
        (1,),
        max_tasks_per_child=1 if fresh else None,
    ) as pool:
        futures = [pool.submit(measure, cell) for cell in todo]
        console = Console(stderr=True)
        try:
            for count, future in enumerate(
                track(
                    as_completed(futures),
                    "cells",
                    total=len(futures),
                    console=console,
                    disable=not console.is_terminal,
                ),
                start=len(wanted) - len(todo) + 1,
            ):
                row = future.result()
                done[row.cell] = row
                _append(out, row)
                if not console.is_terminal:
                    print(f"{count}/{len(wanted)} {row}", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            sys.exit(f"interrupted; {out} holds what is done")
    return [done[cell] for cell in wanted]


def _mend(out: Path) -> None:
    """Cut off a last line that a kill left unfinished; its cell is measured again."""
    if out.exists():
        text = out.read_bytes()
        out.write_bytes(text[: text.rfind(b"\n") + 1])


def _read(out: Path, kind: type[RowT]) -> Iterator[RowT]:
    if not out.exists():
        return
    kinds = {"str": str, "int": int, "float": float}
    with out.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if lines.fieldnames not in (None, [field.name for field in fields(kind)]):
            sys.exit(f"{out}: has the columns of another version: give this one its own file")
        for line in lines:
            yield kind(
                **{field.name: kinds[str(field.type)](line[field.name]) for field in fields(kind)}
            )


def _append(out: Path, row: RowT) -> None:
    new = not out.exists() or not out.stat().st_size
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(row)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


@cache
def load_cached(name_or_path: str | Path) -> Dataset:
    """Load a data set once per process."""
    return load(name_or_path)


def markdown_table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of text for the documentation."""
    every = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in every) + "\n"
