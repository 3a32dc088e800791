"""Read a data set from an `.npz` file that need not be trusted.

What its headers claim is checked, and added up against a limit, before any array is read; see
`gradpeel.files`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.dataset import Dataset, check_dtype, check_scaling, rescale
from gradpeel.errors import InputError
from gradpeel.files import Header, Npz

__all__ = ["load_npz"]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CLASS_NAMES = ("class_names", "activity_names")
FEATURE_NAMES = ("feature_names",)
MAX_BYTES = 4 * 2**30


def load_npz(
    path: str | os.PathLike[str], scaling: str = "minmax", *, max_bytes: int = MAX_BYTES
) -> Dataset:
    """Read `x_train, y_train, x_test, y_test` from an `.npz` file and scale the samples.

    The test split may be missing; the arrays are then called `x_train` and `y_train`, or `x` and
    `y`.

    uint8 samples are pixels, flattened or not, and are divided by 255. All others, float images
    among them, are scaled feature by feature as `scaling` says; see `rescale`. Names are kept
    where the file holds `class_names` (or `activity_names`) or `feature_names` as plain text; the
    number of classes is then the number of class names, else the largest label plus one.

    Args:
        path: the file.
        scaling: "minmax", "standard" or "raw".
        max_bytes: refuse a file whose arrays would take more than this in memory.

    Raises:
        InputError: the file or an array in it breaks a rule; the line names both.

    Example:
        >>> import tempfile
        >>> x, y = np.arange(48, dtype=np.uint8).reshape(3, 4, 4), np.array([0, 1, 2])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "tiny.npz"
        ...     np.savez(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
        ...     load_npz(path)
        Dataset('tiny', train=3, test=2, sample_shape=(4, 4), classes=3)
    """
    check_scaling(scaling)
    path = Path(path)
    with Npz(path) as file:
        stored = _stored_names(file)
        headers = _read_headers(file, stored)
        _check_headers(headers, path, max_bytes)
        is_pixels = headers["x_train"].dtype == np.uint8
        if is_pixels:
            check_scaling(scaling, pixels_of=str(path))
        arrays = {field: file.read(stored.get(field, field)) for field in headers}
    if "x_test" not in arrays:
        arrays["x_test"], arrays["y_test"] = arrays["x_train"][:0], arrays["y_train"][:0]
    class_names = _pick_names(arrays, CLASS_NAMES)
    largest = max(int(arrays[field].max(initial=0)) for field in ("y_train", "y_test"))
    white = 255.0 if is_pixels else 1.0
    dataset = Dataset(
        # Until all checks are done the name is the path, so that their messages name the file.
        name=str(path),
        x_train=arrays["x_train"] / white,
        y_train=arrays["y_train"],
        x_test=arrays["x_test"] / white,
        y_test=arrays["y_test"],
        classes=len(class_names) if class_names else largest + 1,
        feature_names=_pick_names(arrays, FEATURE_NAMES),
        class_names=class_names,
        data_range=(0.0, 1.0) if is_pixels else None,
    )
    scaled = dataset if is_pixels else rescale(dataset, scaling)
    return replace(scaled, name=path.stem)


def _stored_names(file: Npz) -> dict[str, str]:
    """What the arrays are called in the file, by what they are; a test split need not be there."""
    fields = set(file.fields)
    if not fields & set(ARRAYS) and {"x", "y"} <= fields:
        return {"x_train": "x", "y_train": "y"}
    stored = {field: field for field in ARRAYS if field in fields}
    needed = ARRAYS if fields & set(ARRAYS[2:]) else ARRAYS[:2]
    missing = [field for field in needed if field not in fields]
    if missing:
        raise InputError(f"{file.path}: {', '.join(missing)} missing: expected {', '.join(ARRAYS)}")
    return stored


def _read_headers(file: Npz, stored: Mapping[str, str]) -> dict[str, Header]:
    """The arrays, and those of names that are plain text; the rest stays unread."""
    headers = {field: file.header(name) for field, name in stored.items()}
    for field in CLASS_NAMES + FEATURE_NAMES:
        if field in file.fields:
            header = file.header(field)
            if header.dtype.kind == "U" and len(header.shape) == 1:
                headers[field] = header
    return headers


def _check_headers(headers: Mapping[str, Header], path: Path, max_bytes: int) -> None:
    """Refuse what must not be read."""
    for field in [field for field in ARRAYS if field in headers]:
        dtype = headers[field].dtype
        if dtype.hasobject:
            rule = "expected numbers (nothing is unpickled)"
            raise InputError(f"{path}: {field} holds Python objects: {rule}")
        check_dtype(str(path), field, dtype)
    train = headers["x_train"].dtype
    test = headers.get("x_test", headers["x_train"]).dtype
    if (train == np.uint8) != (test == np.uint8):
        rule = "expected uint8 in both or in neither"
        raise InputError(f"{path}: x_test has dtype {test}, x_train {train}: {rule}")
    total = sum(map(_bytes_in_memory, headers.values()))
    if total > max_bytes:
        rule = f"expected at most max_bytes={max_bytes}"
        raise InputError(f"{path}: its arrays take {total} bytes in memory: {rule}")


def _bytes_in_memory(header: Header) -> int:
    """What an array takes once read: a number is 8 bytes wide, a Python string 64 and its text."""
    return header.size * (64 + header.dtype.itemsize if header.dtype.kind == "U" else 8)


def _pick_names(
    arrays: Mapping[str, NDArray[Any]], fields: tuple[str, ...]
) -> tuple[str, ...] | None:
    return next((tuple(arrays[field].tolist()) for field in fields if field in arrays), None)
