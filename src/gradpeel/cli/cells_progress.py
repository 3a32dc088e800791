"""A sweep to watch: elapsed time, time left and the current cell, or one line per cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column

from gradpeel.reporting.words import counted, duration, printable

if TYPE_CHECKING:
    from gradpeel.sweeps import Progress

__all__ = ["watch_cells"]

LONGEST = 300
BAR_WIDTH = 10


@contextmanager
def watch_cells(*, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Give the function to call as cells end; what it shows goes to stderr.

    On a terminal the clock runs from the beginning of the block, so that whoever waits for imports,
    data or the first cell sees that something happens. Failed cells are named above the bar.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
        return
    pace = _Pace()
    if not console.is_terminal:
        yield lambda progress: _say(progress, pace)
        return
    columns = (
        BarColumn(BAR_WIDTH),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
    )
    with Bar(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("reading the plan and the data", total=None, left="")

        def show(progress: Progress) -> None:
            ended, current = progress.finished, progress.current
            bar.update(
                task,
                total=progress.total,
                completed=progress.done,
                left=pace.left(progress),
                description="" if current is None else printable(str(current), LONGEST),
            )
            if ended is not None and ended.error is not None:
                console.print(printable(str(ended), LONGEST), markup=False, highlight=False)

        yield show


def _say(progress: Progress, pace: _Pace) -> None:
    left = pace.left(progress)
    if progress.finished is None:
        held = f", {progress.done} of them done before" if progress.done else ""
        typer.echo(f"{counted(progress.total, 'cell')}{held}", err=True)
        return
    where = f"{progress.done}/{progress.total}"
    ended = printable(str(progress.finished), LONGEST)
    typer.echo(f"{where} {ended}; {pace.elapsed()} elapsed, {left}", err=True)


class _Pace:
    """Time elapsed and time left, by the cells that this process ran.

    The rate counts from the end of the first cell, because workers take seconds to start and do so
    once; until a second cell has ended, the first one has to do for all.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: float | None = None

    def elapsed(self) -> str:
        return duration(time.monotonic() - self._start)

    def left(self, progress: Progress) -> str:
        if not progress.new:
            return "estimating" if progress.done < progress.total else "nothing left"
        now = time.monotonic()
        if self._first is None:
            self._first = now
        measured = now - self._first if progress.new > 1 else now - self._start
        each = measured / max(progress.new - 1, 1)
        return f"{duration((progress.total - progress.done) * each)} left"
