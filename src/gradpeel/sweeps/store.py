"""Results that survive: an SQLite file in the sweep's directory, written as each cell ends.

Formal guarantees:

- a cell is recorded whole or not at all, whenever the process is killed;
- no cell is recorded twice: its key is the primary key;
- one process writes at a time; the lock goes with the process, however that ends;
- all rows come from the same data and the same version of gradpeel, or the store is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from gradpeel.errors import InputError
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.measurement import Measurement

__all__ = ["Finished", "Store"]

FILE, LOCK = "results.sqlite", ".lock.sqlite"

SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    measurement TEXT,
    error TEXT,
    seconds REAL NOT NULL,
    CHECK ((measurement IS NULL) <> (error IS NULL))
) STRICT;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True)
class Finished:
    """A cell that was run.

    Attributes:
        cell: its settings.
        measurement: what it measured; None where it failed.
        error: why it failed, in a line; None where it did not.
        seconds: time it took.
    """

    cell: Cell
    measurement: Measurement | None
    error: str | None
    seconds: float

    def __str__(self) -> str:
        said = f"failed: {self.error}" if self.measurement is None else self.measurement.account
        return f"{self.cell}: {said}"


def _open(path: Path) -> sqlite3.Connection:
    """Open a database that only the user can read, and make it if need be."""
    try:
        path.touch(mode=0o600)
        return sqlite3.connect(path, timeout=0, isolation_level=None)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be used: {error}") from None


class Store:
    """The results of a sweep; use it in a `with` block, which holds the lock.

    Args:
        folder: the sweep's directory, which exists.

    Raises:
        InputError: another process writes to it, or its file is none of ours.

    Example:
        >>> import tempfile
        >>> cell = Cell(dataset="digits", design="passive", batch_size=8)
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     store.record(Finished(cell, None, "out of memory", 0.5))
        ...     store.failed_keys() == {cell.key}, [str(one) for one in store.finished()]
        (True, ['digits Passive B=8 N=1000 seed 0: failed: out of memory'])
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = _open(folder / LOCK)
        try:
            self._lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            self._lock.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise InputError(f"{folder}: another sweep is writing to it") from None
            raise InputError(f"{folder / LOCK}: cannot be used: {error}") from None
        try:
            self._results = _open(self.path)
        except InputError:
            self._lock.close()
            raise
        try:
            with self._told_in_one_line():
                self._results.executescript(SCHEMA)
        except InputError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and the lock."""
        self._results.close()
        self._lock.close()

    def agree(self, facts: Mapping[str, str]) -> None:
        """Note what all rows have in common, or refuse what differs from what is noted.

        Raises:
            InputError: a fact differs; nothing is noted then.
        """
        with self._told_in_one_line():
            if not self._results.execute("SELECT 1 FROM cells LIMIT 1").fetchall():
                self._results.execute("DELETE FROM facts")  # they bind nobody yet
            known = dict(self._results.execute("SELECT name, value FROM facts").fetchall())
        for name, value in facts.items():
            if known.get(name, value) != value:
                rule = f"{name} was {known[name]} for the rows it holds: use another directory"
                raise InputError(f"{self.path}: {name} is {value}: {rule}")
        with self._told_in_one_line():
            self._results.execute("BEGIN")
            self._results.executemany(
                "INSERT OR IGNORE INTO facts VALUES (?, ?)", list(facts.items())
            )
            self._results.execute("COMMIT")

    def record(self, finished: Finished) -> None:
        """Keep a cell; one that failed before is replaced."""
        measured = finished.measurement
        values = (
            finished.cell.key,
            json.dumps(finished.cell.settings),
            None if measured is None else json.dumps(asdict(measured)),
            finished.error,
            finished.seconds,
        )
        with self._told_in_one_line():
            self._results.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", values)

    def keys(self) -> set[str]:
        """Keys of all cells that were run."""
        return self._keys("")

    def failed_keys(self) -> set[str]:
        """Keys of those that failed."""
        return self._keys(" WHERE error IS NOT NULL")

    def finished(self) -> list[Finished]:
        """All cells that were run, in no order that means anything."""
        with self._told_in_one_line():
            rows = self._results.execute(
                "SELECT settings, measurement, error, seconds FROM cells ORDER BY key"
            ).fetchall()
            return [
                Finished(
                    Cell.from_settings(json.loads(settings)),
                    None if measured is None else Measurement(**json.loads(measured)),
                    error,
                    seconds,
                )
                for settings, measured, error, seconds in rows
            ]

    def _keys(self, which: str) -> set[str]:
        with self._told_in_one_line():
            return {key for (key,) in self._results.execute(f"SELECT key FROM cells{which}")}  # noqa: S608

    @contextmanager
    def _told_in_one_line(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{self.path}: cannot be used as a store: {reason}") from None
