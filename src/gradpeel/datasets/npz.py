"""Read a data set from an `.npz` file that nobody vouches for.

Such files are passed around, so this one is treated as hostile: nothing in it is unpickled, and
what its headers claim is checked, and added up against a limit, before any array is read.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradpeel.datasets.dataset import Dataset, check_dtype, check_features, rescale
from gradpeel.errors import InputError

__all__ = ["load_npz"]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CLASS_NAMES = ("class_names", "activity_names")
FEATURE_NAMES = ("feature_names",)
MAX_BYTES = 4 * 2**30


def load_npz(
    path: str | os.PathLike[str], features: str = "minmax", *, max_bytes: int = MAX_BYTES
) -> Dataset:
    """Read `x_train, y_train, x_test, y_test` from an `.npz` file and scale the samples.

    uint8 samples are pixels, flattened or not, and are divided by 255. All others, float images
    among them, are scaled feature by feature as `features` says; see `rescale`. Names are kept
    where the file holds `class_names` (or `activity_names`) or `feature_names` as plain text; the
    number of classes is then the number of class names, else the largest label plus one.

    Args:
        path: the file.
        features: "minmax", "standard" or "raw".
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
    check_features(features)
    path = Path(path)
    with _open_archive(path) as archive:
        headers = _read_headers(archive, path)
        _check_headers(headers, path, max_bytes)
        is_pixels = headers["x_train"].dtype == np.uint8
        if is_pixels:
            check_features(features, pixels_of=str(path))
        arrays = {field: _read_array(archive, path, field) for field in headers}
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
    scaled = dataset if is_pixels else rescale(dataset, features)
    return replace(scaled, name=path.stem)


@dataclass(frozen=True)
class _Header:
    """What an array in the file claims to be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes_in_memory(self) -> int:
        """What it takes once read: a number is 8 bytes wide, a Python string 64 and its text."""
        return math.prod(self.shape) * (64 + self.dtype.itemsize if self.dtype.kind == "U" else 8)


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory: expected an .npz file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror or error}") from None
    except Exception:  # noqa: BLE001 -- a damaged archive raises more than BadZipFile
        raise InputError(f"{path}: not an .npz file (no intact zip archive)") from None


@contextmanager
def _told_in_one_line(path: Path, field: str) -> Iterator[None]:
    """Name file and array in whatever a damaged archive makes zipfile, zlib or numpy raise."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- the three raise a dozen unrelated types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: {field} cannot be read: {reason}") from None


def _read_headers(archive: zipfile.ZipFile, path: Path) -> dict[str, _Header]:
    """The four arrays, and those of names that are plain text; the rest stays unread."""
    held = set(archive.namelist())
    missing = [field for field in ARRAYS if f"{field}.npy" not in held]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} missing: expected {', '.join(ARRAYS)}")
    headers = {field: _read_header(archive, path, field) for field in ARRAYS}
    for field in CLASS_NAMES + FEATURE_NAMES:
        if f"{field}.npy" in held:
            header = _read_header(archive, path, field)
            if header.dtype.kind == "U" and len(header.shape) == 1:
                headers[field] = header
    return headers


def _read_header(archive: zipfile.ZipFile, path: Path, field: str) -> _Header:
    with _told_in_one_line(path, field), archive.open(f"{field}.npy") as stream:
        # Version 3.0 is for field names of structured types, which no array here may have.
        is_first = npy.read_magic(stream) == (1, 0)
        read = npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        held = archive.getinfo(f"{field}.npy").file_size - stream.tell()
    # A few bytes may claim to be an array of any size, and numpy allocates before it reads.
    claimed = -1 if min(shape, default=0) < 0 else math.prod(shape) * dtype.itemsize
    if claimed != held and not dtype.hasobject:
        raise InputError(f"{path}: {field} claims shape {shape} of {dtype}, holds {held} bytes")
    return _Header(shape, dtype)


def _check_headers(headers: Mapping[str, _Header], path: Path, max_bytes: int) -> None:
    """Refuse what must not be read."""
    for field in ARRAYS:
        dtype = headers[field].dtype
        if dtype.hasobject:
            rule = "expected numbers (nothing is unpickled)"
            raise InputError(f"{path}: {field} holds Python objects: {rule}")
        check_dtype(str(path), field, dtype)
    train, test = headers["x_train"].dtype, headers["x_test"].dtype
    if (train == np.uint8) != (test == np.uint8):
        rule = "expected uint8 in both or in neither"
        raise InputError(f"{path}: x_test has dtype {test}, x_train {train}: {rule}")
    total = sum(header.bytes_in_memory for header in headers.values())
    if total > max_bytes:
        rule = f"expected at most max_bytes={max_bytes}"
        raise InputError(f"{path}: its arrays take {total} bytes in memory: {rule}")


def _read_array(archive: zipfile.ZipFile, path: Path, field: str) -> NDArray[Any]:
    with _told_in_one_line(path, field), archive.open(f"{field}.npy") as stream:
        # allow_pickle=False: unpickling runs what the file's author wrote.
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        # zipfile compares the checksum at the end, one read after the array's last byte.
        stream.read(1)
    return array


def _pick_names(
    arrays: Mapping[str, NDArray[Any]], fields: tuple[str, ...]
) -> tuple[str, ...] | None:
    return next((tuple(arrays[field].tolist()) for field in fields if field in arrays), None)
