"""Cells on a Ray cluster: this machine by default, or the cluster at an address."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.data import DataSource
from gradpeel.sweeps.engines import attempt, use_one_thread
from gradpeel.sweeps.store import Finished

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["RayEngine"]

RETRIES = 3


@dataclass(frozen=True)
class RayEngine:
    """Tasks of one core each on a Ray cluster, where gradpeel must be installed too.

    Data sets travel through Ray's object store, so only this machine needs their files. A task
    whose worker is lost runs again, three times at most; then the cell counts as failed.

    Attributes:
        workers: cells at a time; on a cluster that is already there, as many as it has cores where
            not given.
        address: the cluster's address; None starts Ray on this machine.

    Raises:
        InputError: Ray is not installed, or `workers` is not a positive number.
    """

    workers: int | None = None
    address: str | None = None

    name: ClassVar[str] = "ray"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers={self.workers}: expected a positive integer")
        _ray()

    def run(self, cells: Sequence[Cell], data: DataSource) -> Generator[Finished, None, None]:
        """Run cells; see `Engine`."""
        ray = _ray()
        self._start(ray)
        try:
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(_attempt_alone)
            width = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            waiting = list(reversed(cells))
            running: dict[Any, Cell] = {}
            sent: tuple[str, Any] = ("", None)
            while waiting or running:
                while waiting and len(running) < width:
                    cell = waiting.pop()
                    if sent[0] != cell.dataset:
                        sent = (cell.dataset, ray.put(data.load(cell.dataset)))
                    running[task.remote(cell, sent[1])] = cell
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    cell = running.pop(reference)
                    try:
                        finished = ray.get(reference)
                    except ray.exceptions.WorkerCrashedError:
                        reason = f"its worker process died, {RETRIES + 1} times"
                        finished = Finished(cell, None, reason, 0.0)
                    except ray.exceptions.RayError as error:
                        reason = " ".join(f"{type(error).__name__}: {error}".split())
                        finished = Finished(cell, None, reason, 0.0)
                    yield finished
        finally:
            ray.shutdown()

    def _start(self, ray: ModuleType) -> None:
        local: dict[str, Any] = {}
        if not self.address:
            local = {"num_cpus": self.workers, "include_dashboard": False}
            # A Ray that this command starts reports to nobody.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                **local,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"address={self.address!r}: Ray does not start: {reason}") from None


def _attempt_alone(cell: Cell, dataset: Dataset) -> Finished:
    use_one_thread()
    return attempt(cell, dataset)


def _ray() -> ModuleType:
    try:
        import ray  # noqa: PLC0415 -- large, and only this engine needs it
    except ImportError:
        hint = "expected Ray installed: pip install 'gradpeel[ray]'"
        raise InputError(f"engine=ray: {hint}") from None
    module: ModuleType = ray
    return module
