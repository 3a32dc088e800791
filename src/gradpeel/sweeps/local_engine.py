"""Cells on this machine, in worker processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import ClassVar

from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.data import DataSource
from gradpeel.sweeps.engines import attempt, use_one_thread
from gradpeel.sweeps.store import Finished

__all__ = ["LocalEngine"]

TRIES = 3


@dataclass(frozen=True)
class LocalEngine:
    """Worker processes on this machine.

    A worker that dies (the system may kill one that takes too much memory) takes the pool with it;
    its cells then run again, one at a time, so that the guilty one is known. It fails after three
    more tries, and the rest goes on.

    Attributes:
        workers: how many.

    Raises:
        InputError: `workers` is not a positive number.
    """

    workers: int

    name: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers={self.workers}: expected a positive integer")

    def run(self, cells: Sequence[Cell], data: DataSource) -> Generator[Finished, None, None]:
        """Run cells; see `Engine`."""
        waiting = list(reversed(cells))
        while waiting:
            suspects = yield from _drain(waiting, data, self.workers)
            for cell in suspects:
                yield _run_alone(cell, data)


def _drain(
    waiting: list[Cell], data: DataSource, workers: int
) -> Generator[Finished, None, list[Cell]]:
    """Run cells off the end of `waiting`; returns those that were running when the pool broke."""
    running: dict[Future[Finished], Cell] = {}
    with _pool(workers) as pool:
        try:
            while waiting or running:
                # One in reserve a worker, no more: what is under way when a pool breaks is known.
                while waiting and len(running) < 2 * workers:
                    running[_submit(pool, waiting[-1], data)] = waiting[-1]
                    waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    finished = future.result()
                    del running[future]
                    yield finished
        except BrokenProcessPool:
            return list(running.values())
    return []


def _run_alone(cell: Cell, data: DataSource) -> Finished:
    for _ in range(TRIES):
        with _pool(1) as pool:
            try:
                return _submit(pool, cell, data).result()
            except BrokenProcessPool:
                continue
    return Finished(cell, None, f"its worker process died, {TRIES} times when it ran alone", 0.0)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Workers that stop at once when the block is left, and when this process is killed."""
    # A forked worker would inherit torch's threads and hang.
    context = multiprocessing.get_context("spawn")
    # Nothing is ever sent: the pipe ends when this process lets go of it, or is gone.
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (theirs,))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _submit(pool: ProcessPoolExecutor, cell: Cell, data: DataSource) -> Future[Finished]:
    """Hand in a cell; the pool starts its workers here, one by one as they are needed."""
    with _deaf_to_ctrl_c(), _without_main():
        return pool.submit(_attempt, cell, data)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; the parent alone decides what it means.

    Processes started in this block inherit that they do not hear it, from their first moment on. In
    this process it waits for the end of the block: a half-started worker would complain.
    """
    heard: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    # The mask is what processes inherit. It does not hold a signal back here, where another thread
    # may take it; so its handler is another one for the time being.
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1)) if in_main else None
    masked = None
    if hasattr(signal, "pthread_sigmask"):  # Windows has none: see _start_worker
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if masked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        if in_main:
            signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from running the user's script again.

    They would do so to find functions in it; ours are all in this package. So a script may call
    `sweep` without asking whether its `__name__` is "__main__".
    """
    main = sys.modules["__main__"]
    names = [name for name in ("__file__", "__spec__") if hasattr(main, name)]
    hidden = {name: getattr(main, name) for name in names}
    try:
        main.__spec__ = None
        if "__file__" in hidden:
            del main.__file__
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


def _start_worker(tether: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(tether,), daemon=True).start()
    use_one_thread()


def _end_with(tether: Connection) -> None:
    """End this process, whatever it is doing, when the other end of the pipe is gone."""
    tether.poll(None)
    os._exit(1)


def _attempt(cell: Cell, data: DataSource) -> Finished:
    return attempt(cell, _load(data, cell.dataset))


# A sweep goes through its data sets one after the other: a worker needs one, or two at a seam.
@lru_cache(maxsize=2)
def _load(data: DataSource, name: str) -> Dataset:
    return data.load(name)
