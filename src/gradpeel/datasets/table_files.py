"""Read a table from a CSV or a Parquet file that need not be trusted.

The first line of a CSV file names its columns; what separates them is a comma, a semicolon or a
tab, whichever the first line has most of. Parquet needs the extra `parquet`.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gradpeel.datasets.dataset import Dataset
from gradpeel.datasets.raw import open_file
from gradpeel.datasets.table import Column, category_column, read_text_column, table_dataset
from gradpeel.errors import InputError

__all__ = ["READERS", "load_table"]

MAX_BYTES = 2**30
"""Of a file, or of the numbers of a Parquet file."""
SEPARATORS = ",;\t"


def load_table(
    path: str | os.PathLike[str], scaling: str = "minmax", *, label_column: str | None = None
) -> Dataset:
    r"""Read a `.csv` or a `.parquet` file; all its rows are the training split.

    Args:
        path: the file.
        scaling: how columns of numbers are scaled: "minmax", "standard" or "raw".
        label_column: name of the column of labels; by default the last one that is called label,
            labels, target, targets or y.

    Raises:
        InputError: the file or a column in it breaks a rule; the line names both.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "people.csv"
        ...     _ = path.write_text("age,job,label\n30,nurse,0\n50,clerk,1\n40,nurse,1\n")
        ...     load_table(path)
        Dataset('people', train=3, test=0, sample_shape=(3,), classes=2)
    """
    path = Path(path)
    columns = READERS[path.suffix.lower()](path)
    # Until all checks are done the name is the path, so that their messages name the file.
    found = table_dataset(str(path), columns, label_column, scaling=scaling)
    return replace(found, name=path.stem)


def _read_csv(path: Path) -> list[Column]:
    with open_file(path) as (stream, size):
        if size > MAX_BYTES:
            raise InputError(f"{path}: has {size} bytes: expected at most {MAX_BYTES}")
        # A byte order mark, as spreadsheets write it, is no part of the first name.
        text = stream.read(MAX_BYTES).decode("utf-8-sig")
        first = text.partition("\n")[0]
        separator = max(SEPARATORS, key=first.count)
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    rows = [line for line in lines[1:] if line]
    if not rows:
        raise InputError(f"{path}: no rows: expected a line of names and lines of values")
    names = [name.strip() for name in lines[0]]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            rule = f"expected {len(names)}, as the first line has"
            raise InputError(f"{path}: row {number} has {len(row)} values: {rule}")
    return [
        read_text_column(str(path), name, texts)
        for name, texts in zip(names, zip(*rows, strict=True), strict=True)
    ]


def _read_parquet(path: Path) -> list[Column]:
    with open_file(path):  # it is a regular file
        pass
    try:
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(f"{path}: needs pip install 'gradpeel[parquet]'") from None
    with open_file(path) as (stream, _):
        file = parquet.ParquetFile(stream)
        claimed = 8 * file.metadata.num_rows * file.metadata.num_columns
        if claimed > MAX_BYTES:
            rule = f"expected at most {MAX_BYTES}"
            raise InputError(f"{path}: its columns take {claimed} bytes in memory: {rule}")
        table = file.read()
        if not table.num_rows:
            raise InputError(f"{path}: no rows")
        return [
            _parquet_column(path, name, column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]


def _parquet_column(path: Path, name: str, column: Any) -> Column:  # noqa: ANN401 - pyarrow's
    from pyarrow import types  # noqa: PLC0415

    if column.null_count:
        found = f"{column.null_count} of {len(column)} values are missing"
        raise InputError(f"{path}: column {name!r}: {found}: expected none")
    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return Column(name, np.asarray(column.to_pylist(), dtype=np.float64))
    values = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(values) or types.is_large_string(values):
        return category_column(str(path), name, column.to_pylist())
    raise InputError(f"{path}: column {name!r} of type {kind}: expected numbers or text")


READERS: Mapping[str, Callable[[Path], list[Column]]] = MappingProxyType(
    {".csv": _read_csv, ".parquet": _read_parquet}
)
"""How a table is read, by the ending of its file."""
