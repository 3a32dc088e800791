"""A sweep to watch: a bar with rate and time left on a terminal, or one line per cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from gradpeel.reporting.words import counted, duration, printable

if TYPE_CHECKING:
    from gradpeel.sweeps import Progress

__all__ = ["watch_cells"]

LONGEST = 300


@contextmanager
def watch_cells(*, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Give the function to call as cells end; what it shows goes to stderr.

    Failed cells are named on a terminal too, above the bar.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
        return
    pace = _Pace()
    if not console.is_terminal:
        yield lambda progress: _say(progress, pace)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking at the data", total=None)

        def show(progress: Progress) -> None:
            told = pace.told(progress)
            ended = progress.finished
            cell = "" if ended is None else f"  {printable(str(ended.cell), LONGEST)}"
            bar.update(task, total=progress.total, completed=progress.done, description=told + cell)
            if ended is not None and ended.error is not None:
                console.print(printable(str(ended), LONGEST), markup=False, highlight=False)

        yield show


def _say(progress: Progress, pace: _Pace) -> None:
    if progress.finished is None:
        held = f", {progress.done} of them done before" if progress.done else ""
        typer.echo(f"{counted(progress.total, 'cell')}{held}", err=True)
        pace.told(progress)
        return
    where = f"{progress.done}/{progress.total}"
    ended = printable(str(progress.finished), LONGEST)
    typer.echo(f"{where} {ended}; {pace.told(progress)}", err=True)


class _Pace:
    """Rate and time left, by the cells that this process ran.

    The clock starts with the first cell that ends: workers take seconds to start, and who has three
    cells left need not be told of them.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    def told(self, progress: Progress) -> str:
        now = time.monotonic()
        if self._first is None or progress.new < 2:
            self._first = now if progress.new else None
            return "starting"
        rate = (progress.new - 1) / max(now - self._first, 1e-9)
        left = (progress.total - progress.done) / rate
        pace = f"{rate:.1f} cells/s" if rate > 1 else f"{1 / rate:.1f} s a cell"
        return f"{pace}, {duration(left)} left"
