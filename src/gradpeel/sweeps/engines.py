"""Where cells run. An engine takes cells and gives back what became of each, in any order.

`attempt` is all that runs on the other side, and the same on every engine: one thread, one cell, an
error caught. A cell does not know who runs it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Sequence
from typing import Protocol

import torch
from threadpoolctl import threadpool_limits

from gradpeel.datasets import Dataset
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.data import DataSource
from gradpeel.sweeps.measurement import measure
from gradpeel.sweeps.store import Finished

__all__ = ["Engine", "attempt", "use_one_thread"]


class Engine(Protocol):
    """Runs cells."""

    @property
    def name(self) -> str:
        """What manifests call it."""

    def run(self, cells: Sequence[Cell], data: DataSource) -> Generator[Finished, None, None]:
        """Run cells and give each as it ends; closing the generator stops the rest at once.

        A cell that fails, or takes its worker down again and again, comes back with its error.

        Raises:
            InputError: the data is gone, or is other data than before.
        """


def use_one_thread() -> None:
    """Give this process one thread: the cells are the parallelism.

    It is also what makes rows equal: the sums of a matrix product round differently on two threads.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)


def attempt(cell: Cell, dataset: Dataset) -> Finished:
    """Run one cell; an error becomes part of the answer."""
    started = time.perf_counter()
    try:
        measurement, seconds = measure(cell, dataset)
    except Exception as error:  # noqa: BLE001 -- one bad cell must not stop the others
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Finished(cell, None, reason, time.perf_counter() - started)
    finally:
        # Traced networks refer to themselves, and Python counts objects, not megabytes, before it
        # looks for such circles: a worker would grow by several megabytes a cell.
        gc.collect()
    return Finished(cell, measurement, None, seconds)
