"""A table of named columns as a data set: numbers scaled, categories as one column for each.

Columns of numbers keep their name and, scaled as asked, their place. A column of text becomes one
column of 0 and 1 per category, called "column = category". Reports show numbers in the units in
which they were measured.

Example:
    >>> age = Column("age", np.array([30.0, 50.0, 40.0]))
    >>> job = Column("job", np.array([1, 0, 1]), ("clerk", "nurse"))
    >>> sick = Column("label", np.array([0, 1, 1]))
    >>> data = table_dataset("people", [age, job, sick], scaling="standard")
    >>> data.feature_names, data.x_train[1].round(2).tolist()
    (('age', 'job = clerk', 'job = nurse'), [1.22, 1.0, 0.0])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.dataset import Dataset, Units, check_scaling, rescale
from gradpeel.errors import InputError

__all__ = ["LABELS", "Column", "from_frame", "read_text_column", "table_dataset"]

LABELS = ("label", "labels", "target", "targets", "y")
"""Names by which a column of labels is known."""
MAX_CATEGORIES = 64
"""A column of more different texts is a name or an identifier, not a category."""
MISSING = {"", "na", "n/a", "nan", "null", "none"}
"""Texts of a file that stand for no value, in small letters."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Attributes:
        name: what it is called.
        values: (rows,) numbers or, of a column of categories, their indices.
        categories: what the indices stand for; None for numbers.
    """

    name: str
    values: NDArray[Any]
    categories: tuple[str, ...] | None = None


def from_frame(
    frame: Any,  # noqa: ANN401 - a DataFrame; pandas is not imported here
    label: str | None = None,
    *,
    test: Any = None,  # noqa: ANN401
    scaling: str = "standard",
    name: str = "table",
) -> Dataset:
    """Make a data set of a pandas DataFrame with columns of numbers, text and categories.

    Args:
        frame: the client's records, one per row.
        label: name of the column of labels; by default the last one that is called label, labels,
            target, targets or y. Whole numbers from 0 are class indices as they are; anything else
            is numbered in its order.
        test: other records with the same columns, encoded and scaled by the numbers of `frame`: the
            server's own, or records to look for.
        scaling: how numbers are scaled: "standard", "minmax" or "raw"; see `rescale`.
        name: what reports call it.

    Raises:
        InputError: a column has missing values, another type, or too many categories; or there is
            no column of labels.

    Example:
        >>> import pandas as pd
        >>> people = pd.DataFrame({"age": [30, 50, 40], "job": list("abb"), "y": [0, 1, 1]})
        >>> from_frame(people)
        Dataset('table', train=3, test=0, sample_shape=(3,), classes=2)
    """
    columns = _frame_columns(frame, name)
    others = None if test is None else _frame_columns(test, f"{name}, test")
    return table_dataset(name, columns, label, test=others, scaling=scaling)


def table_dataset(
    name: str,
    columns: Sequence[Column],
    label: str | None = None,
    *,
    test: Sequence[Column] | None = None,
    scaling: str = "minmax",
) -> Dataset:
    """Make a data set of columns; the arguments are those of `from_frame`."""
    check_scaling(scaling)
    names = [column.name for column in columns]
    chosen = _label_column(name, names, label)
    target = columns[chosen]
    features = [column for place, column in enumerate(columns) if place != chosen]
    if not features:
        raise InputError(f"{name}: no column beside {target.name!r}: expected features")
    shared = None
    if test is not None:
        given = [column.name for column in test]
        if given != names:
            raise InputError(f"{name}, test: columns {_listed(given)}: expected {_listed(names)}")
        shared = [
            _with_categories(own, other, name) for own, other in zip(columns, test, strict=True)
        ]
    y, classes = _labels(name, target)
    x_train, feature_names, is_category = _encoded(features)
    x_test, y_test = np.empty((0, x_train.shape[1])), np.empty(0, np.int64)
    if shared is not None:
        y_test = shared[chosen].values if target.categories else _labels(name, shared[chosen])[0]
        x_test = _encoded([one for place, one in enumerate(shared) if place != chosen])[0]
    raw = Dataset(
        name=name,
        x_train=x_train,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        classes=len(classes) if classes else int(max(y.max(), y_test.max(initial=0))) + 1,
        feature_names=feature_names,
        class_names=classes,
    )
    scaled = rescale(raw, scaling)
    if scaled.units is None:
        return scaled
    # A category is 0 or 1, whatever its share of the rows.
    units = Units(
        np.where(is_category, 0.0, scaled.units.offset),
        np.where(is_category, 1.0, scaled.units.spread),
    )
    return replace(
        scaled,
        x_train=np.where(is_category, raw.x_train, scaled.x_train),
        x_test=np.where(is_category, raw.x_test, scaled.x_test),
        units=units,
    )


def read_text_column(source: str, name: str, texts: Sequence[str]) -> Column:
    """A column of a text file: of numbers, if all its entries are.

    Raises:
        InputError: an entry is missing, or there are too many categories.

    Example:
        >>> read_text_column("a.csv", "age", ["30", " 4.5"]).values.tolist()
        [30.0, 4.5]
        >>> read_text_column("a.csv", "job", ["nurse", "clerk"])
        Column(name='job', values=array([1, 0]), categories=('clerk', 'nurse'))
    """
    cells = [text.strip() for text in texts]
    missing = sum(cell.lower() in MISSING for cell in cells)
    if missing:
        raise _missing(source, name, missing, len(cells))
    try:
        return Column(name, np.array([float(cell) for cell in cells]))
    except ValueError:
        return category_column(source, name, cells)


def category_column(source: str, name: str, texts: Sequence[str]) -> Column:
    """A column of categories, in the order of their names.

    Raises:
        InputError: there are too many.
    """
    categories, indices = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
    return Column(name, indices, _checked(source, name, tuple(categories.tolist())))


def _checked(source: str, name: str, categories: tuple[str, ...]) -> tuple[str, ...]:
    if len(categories) > MAX_CATEGORIES:
        raise InputError(
            f"{source}: column {name!r} holds {len(categories)} different texts: expected numbers, "
            f"or at most {MAX_CATEGORIES} categories"
        )
    return categories


def _missing(source: str, name: str, missing: int, rows: int) -> InputError:
    found = f"{missing} of {rows} values are missing"
    return InputError(f"{source}: column {name!r}: {found}: expected none")


def _label_column(source: str, names: Sequence[str], label: str | None) -> int:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{source}: two columns are called {twice!r}: expected different names")
    if label is not None:
        if label not in names:
            raise InputError(f"{source}: no column {label!r}: it has {_listed(names)}")
        return list(names).index(label)
    known = [place for place, name in enumerate(names) if name.lower() in LABELS]
    if not known:
        rule = "expected label_column, or a column called label, target or y"
        raise InputError(f"{source}: no column of labels: {rule}; it has {_listed(names)}")
    return known[-1]


def _labels(source: str, column: Column) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Class indices, and the names of classes that had to be numbered."""
    if column.categories is not None:
        return column.values.astype(np.int64), column.categories
    values = column.values
    if not np.isfinite(values).all() or (values % 1).any():
        odd = values[~np.isfinite(values) | (values % 1 != 0)][0]
        raise InputError(
            f"{source}: column {column.name!r} holds {odd:g}: expected class labels, whole numbers "
            "or text"
        )
    if values.min() >= 0:
        return values.astype(np.int64), None
    found, indices = np.unique(values, return_inverse=True)
    return indices, tuple(f"{value:.0f}" for value in found)


def _encoded(
    columns: Sequence[Column],
) -> tuple[NDArray[np.float64], tuple[str, ...], NDArray[np.bool_]]:
    """(rows, features) the table as numbers, names of the features, and which are categories."""
    parts: list[NDArray[Any]] = []
    names: list[str] = []
    for column in columns:
        if column.categories is None:
            parts.append(column.values[:, None].astype(np.float64))
            names.append(column.name)
        else:
            parts.append(column.values[:, None] == np.arange(len(column.categories)))
            names += [f"{column.name} = {category}" for category in column.categories]
    is_category = np.repeat(
        [column.categories is not None for column in columns], [part.shape[1] for part in parts]
    )
    return np.concatenate(parts, axis=1, dtype=np.float64), tuple(names), is_category


def _with_categories(own: Column, other: Column, source: str) -> Column:
    """A column of the test table with the categories of the training table."""
    if (own.categories is None) != (other.categories is None):
        kinds = ("numbers" if one.categories is None else "text" for one in (other, own))
        found, expected = kinds
        raise InputError(f"{source}, test: column {own.name!r} holds {found}: expected {expected}")
    if own.categories is None or other.categories is None:
        return other
    unknown = [category for category in other.categories if category not in own.categories]
    if unknown:
        rule = f"expected one of {_listed(own.categories)}"
        raise InputError(f"{source}, test: column {own.name!r} holds {unknown[0]!r}: {rule}")
    places = np.array([own.categories.index(category) for category in other.categories])
    return Column(own.name, places[other.values], own.categories)


def _frame_columns(frame: Any, source: str) -> list[Column]:  # noqa: ANN401 - a DataFrame
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise InputError(f"frame of type {type(frame).__name__}: expected a pandas DataFrame")
    if not len(frame):
        raise InputError(f"{source}: a DataFrame without rows")
    return [_frame_column(source, frame.iloc[:, place]) for place in range(frame.shape[1])]


def _frame_column(source: str, series: Any) -> Column:  # noqa: ANN401 - a Series
    name, kind = str(series.name), getattr(series.dtype, "kind", "O")
    missing = int(series.isna().sum())
    if missing:
        raise _missing(source, name, missing, len(series))
    if kind in "biuf":
        return Column(name, series.to_numpy(dtype=np.float64))
    if hasattr(series, "cat"):
        categories = tuple(map(str, series.cat.categories))
        return Column(name, series.cat.codes.to_numpy(np.int64), _checked(source, name, categories))
    values = series.tolist()
    if not all(isinstance(value, str) for value in values):
        raise InputError(
            f"{source}: column {name!r} of dtype {series.dtype}: expected numbers, text or "
            "categories"
        )
    return category_column(source, name, values)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(repr(name) for name in names[:8]) + more
