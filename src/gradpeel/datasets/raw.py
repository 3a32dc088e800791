"""What readers of original files return, and the precautions they share.

The files may come from anywhere and are treated as hostile: only regular files are opened, what a
header claims is compared with the file before memory is allocated, and errors are reported in one
line that names the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gradpeel.errors import InputError

__all__ = [
    "Format",
    "RawSet",
    "check_labels",
    "find_files",
    "is_file",
    "is_folder",
    "open_file",
    "read_exactly",
    "read_text",
    "told_in_one_line",
]

CHUNK = 2**20
MAX_TEXT_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class RawSet:
    """The first samples of both splits as the files hold them: uint8 pixels, or float64 features.

    Attributes:
        x_train: (train, *sample_shape).
        y_train: labels from 0, (train,).
        x_test: (test, *sample_shape).
        y_test: (test,).
        classes: number of classes.
        class_names: one for each class, or None.
        feature_names: one for each feature, or None.
    """

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    classes: int
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None


class Format(Protocol):
    """A way to lay out a data set in a folder."""

    @property
    def files(self) -> str:
        """The files that are expected, in a few words."""

    def read(self, folder: Path, limit: int) -> RawSet | None:
        """Read the first `limit` samples of each split; None where no file of the format is.

        Raises:
            InputError: some of the files are missing, or one breaks a rule.
        """


def is_file(path: Path) -> bool:
    """Is there a regular file, or a link to one? Never raises, unlike `Path.is_file`."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Is there a folder, or a link to one? Never raises, unlike `Path.is_dir`."""
    return os.path.isdir(path)  # noqa: PTH112


def find_files(
    folder: Path, names: Sequence[str], endings: Sequence[str] = ("",)
) -> tuple[Path, ...] | None:
    """Find each named file with the first of the endings it has; None where none of them is.

    Raises:
        InputError: some are there and some are not.

    Example:
        >>> find_files(Path("nowhere"), ["train.bin", "test.bin"]) is None
        True
    """
    found = [
        next((path for end in endings if is_file(path := folder / f"{name}{end}")), None)
        for name in names
    ]
    missing = [name for name, path in zip(names, found, strict=True) if path is None]
    if len(missing) == len(names):
        return None
    if missing:
        raise InputError(f"{folder}: {', '.join(missing)} missing: expected {', '.join(names)}")
    return tuple(path for path in found if path is not None)


@contextmanager
def told_in_one_line(path: Path) -> Iterator[None]:
    """Name the file in whatever a damaged one makes the libraries below raise."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read: {reason}") from None
    except Exception as error:  # noqa: BLE001 -- gzip, zlib and Pillow raise a dozen types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason}") from None


class Bytes(Protocol):
    """Anything to read bytes from."""

    def read(self, count: int, /) -> bytes:
        """At most so many bytes; none at the end."""


@contextmanager
def open_file(path: Path) -> Iterator[tuple[Any, int]]:
    """Open a regular file; give its stream and its size.

    Raises:
        InputError: it is missing or no regular file, or anything goes wrong in the block.
    """
    if not is_file(path):
        # A pipe or a device would block, or never end.
        raise InputError(f"{path}: no such file")
    with told_in_one_line(path), path.open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size


def read_exactly(stream: Bytes, count: int, path: Path) -> bytearray:
    """Read so many bytes, in pieces: memory grows by what is there, not by what was claimed.

    Raises:
        InputError: the file ends before.
    """
    content = bytearray()
    while len(content) < count:
        piece = stream.read(min(CHUNK, count - len(content)))
        if not piece:
            raise InputError(f"{path}: ends after {len(content)} of {count} bytes: is cut off")
        content += piece
    return content


def read_text(path: Path) -> list[str]:
    """The lines of a small text file, without those that are blank.

    Raises:
        InputError: it is missing, no text, or larger than any list of names is.
    """
    with open_file(path) as (stream, size):
        if size > MAX_TEXT_BYTES:
            rule = f"expected at most {MAX_TEXT_BYTES}"
            raise InputError(f"{path}: has {size} bytes: {rule}")
        lines = stream.read(MAX_TEXT_BYTES).decode("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]


def check_labels(path: Path, labels: NDArray[Any], low: int, high: int) -> NDArray[np.int64]:
    """Labels as int64, counted from 0; `low` and `high` are the file's own first and last.

    Raises:
        InputError: a label is outside.

    Example:
        >>> check_labels(Path("y.txt"), np.array([1, 3]), 1, 6).tolist()
        [0, 2]
    """
    # MATLAB may hold labels as floats: whole ones, and NaN is in no range.
    with np.errstate(invalid="ignore"):
        fits = (labels >= low) & (labels <= high) & (labels % 1 == 0)
    outside = np.flatnonzero(~fits)
    if outside.size:
        i = outside[0]
        raise InputError(f"{path}: label[{i}]={labels[i]}: expected a label in {low}..{high}")
    whole: NDArray[np.int64] = labels.astype(np.int64)
    return whole - low
