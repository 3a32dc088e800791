"""Measure many cells in parallel, one line of a CSV file per cell; an interrupted run resumes.

A *cell* names one measurement, a *row* holds it; both are frozen dataclasses of strings and
numbers. Every row is a pure function of its cell, so that it does not matter who measures it when.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gradpeel.datasets import Dataset, load
from gradpeel.sweeps.engines import use_one_thread

__all__ = ["Row", "load_cached", "markdown_table", "read_rows", "run"]


class Row(Protocol):
    """What was measured of a cell; `str` gives it in a line."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cell(self) -> Hashable:
        """The cell this is the measurement of."""


CellT = TypeVar("CellT", bound=Hashable)
RowT = TypeVar("RowT", bound=Row)

OFTEN = 100
"""The tally is renewed after so many rows."""


def _no_tally(_: Sequence[Row]) -> str:
    return ""


def run(
    cells: Iterable[CellT],
    measure: Callable[[CellT], RowT],
    out: Path,
    kind: type[RowT],
    *,
    workers: int,
    fresh: bool = False,
    tally: Callable[[list[RowT]], str] = _no_tally,
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
        tally: what to report of the rows so far, in a few words.
    """
    wanted = list(dict.fromkeys(cells))
    _mend(out)
    done: dict[Hashable, RowT] = {row.cell: row for row in read_rows(out, kind)}
    todo = [cell for cell in wanted if cell not in done]
    if not todo:
        return [done[cell] for cell in wanted]
    # A forked worker would inherit torch's pool of threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers,
        context,
        _start_worker,
        max_tasks_per_child=1 if fresh else None,
    ) as pool:
        futures = [pool.submit(measure, cell) for cell in todo]
        rows = [done[cell] for cell in wanted if cell in done]
        try:
            with _progress() as progress:
                bar = progress.add_task(tally(rows), total=len(wanted), completed=len(rows))
                for future in as_completed(futures):
                    row = future.result()
                    rows.append(row)
                    done[row.cell] = row
                    _append(out, row)
                    count = len(rows)
                    progress.advance(bar)
                    if progress.disable:
                        print(f"{count}/{len(wanted)} {row}", file=sys.stderr)
                    if count % OFTEN == 0 and (words := tally(rows)):
                        progress.update(bar, description=words)
                        if progress.disable:
                            print(f"{count}/{len(wanted)} so far: {words}", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            sys.exit(f"interrupted; {out} holds what is done")
        except BaseException:
            # Leaving the block would first measure all other cells, and lose them.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[cell] for cell in wanted]


def _progress() -> Progress:
    """A bar on a terminal; nothing where the lines go to a file."""
    console = Console(stderr=True)
    return Progress(
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        disable=not console.is_terminal,
    )


def _start_worker() -> None:
    """Use one thread, since cells are the parallelism, and end with the process that started it."""
    use_one_thread()
    # A worker whose parent was killed would wait for its next cell for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _mend(out: Path) -> None:
    """Cut off a last line that a kill left unfinished; its cell is measured again."""
    if out.exists():
        text = out.read_bytes()
        out.write_bytes(text[: text.rfind(b"\n") + 1])


def read_rows(out: Path, kind: type[RowT]) -> Iterator[RowT]:
    """The rows that a file holds; none if there is no such file."""
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
