"""Results as tables for other programs: CSV and Parquet, one line per cell.

A line holds the cell's settings and what was measured, or the error of a failed cell. It does not
hold the seconds, which the settings do not determine, so that two runs of a plan can be compared
byte by byte.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from gradpeel.errors import InputError
from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.measurement import Measurement
from gradpeel.sweeps.store import Finished

__all__ = ["timings_csv", "to_csv", "to_parquet"]

COLUMNS = (
    "method",
    *(item.name for item in fields(Cell)),
    "recovery_rate",
    "peeling_bound",
    *(item.name for item in fields(Measurement)),
    "error",
)


def to_csv(rows: Iterable[Finished]) -> bytes:
    """A CSV file; lists within a field have spaces between their items.

    Example:
        >>> cell = Cell(dataset="digits", design="passive", batch_size=8, tail=(64, 32))
        >>> failed = Finished(cell, None, "out of memory", 0.5)
        >>> header, line = to_csv([failed]).decode().splitlines()
        >>> header[:28], line[:24], line[-13:]
        ('method,dataset,design,weight', 'Passive,digits,passive,,', 'out of memory')
    """
    lines = ({name: _text(value) for name, value in _record(row).items()} for row in rows)
    return _csv(COLUMNS, lines)


def timings_csv(rows: Iterable[Finished]) -> bytes:
    """A CSV file of the seconds that each cell took."""
    lines = ({"key": row.cell.key, "cell": str(row.cell), "seconds": row.seconds} for row in rows)
    return _csv(("key", "cell", "seconds"), lines)


def to_parquet(rows: Sequence[Finished]) -> bytes:
    """A Parquet file.

    Raises:
        InputError: pyarrow, which writes it, is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 -- large, and few need it
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        hint = "expected pyarrow installed: pip install 'gradpeel[parquet]'"
        raise InputError(f"results.parquet: {hint}") from None
    kinds = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "tuple[float, float]": pa.list_(pa.float64()),
        "tuple[int, ...]": pa.list_(pa.int64()),
        "bool": pa.bool_(),
    }
    declared = {
        item.name: kinds[str(item.type).removesuffix(" | None")]
        for item in (*fields(Cell), *fields(Measurement))
    }
    rates = {"recovery_rate": pa.float64(), "peeling_bound": pa.float64()}
    texts = {"method": pa.string(), "error": pa.string()}
    types = {**declared, **rates, **texts}
    schema = pa.schema([(name, types[name]) for name in COLUMNS])
    stream = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([_record(row) for row in rows], schema), stream)
    return stream.getvalue()


def _record(row: Finished) -> dict[str, Any]:
    measured = row.measurement
    found: dict[str, Any] = {} if measured is None else asdict(measured)
    if measured is not None:
        found["recovery_rate"] = measured.recovered / row.cell.samples
        found["peeling_bound"] = measured.reachable / row.cell.samples
    every = {"method": row.cell.method, **row.cell.settings, **found, "error": row.error}
    return {name: every.get(name) for name in COLUMNS}


def _text(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _csv(columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()
