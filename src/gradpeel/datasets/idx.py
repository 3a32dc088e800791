"""The idx files of MNIST, Fashion-MNIST and EMNIST, plain or gzipped.

A file of images begins with the numbers 2051, count, rows and columns, a file of labels with 2049
and count, all 32 bits wide and big-endian; one byte for each pixel or label follows.

    >>> MNIST_FILES.train_images, EMNIST_FILES.test_labels
    ('train-images-idx3-ubyte', 'emnist-byclass-test-labels-idx1-ubyte')
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.raw import Bytes, RawSet, check_labels, find_files, open_file, read_exactly
from gradpeel.errors import InputError

__all__ = ["EMNIST_FILES", "MNIST_FILES", "IdxFiles", "IdxFormat"]

IMAGES, LABELS = 2051, 2049


@dataclass(frozen=True)
class IdxFiles:
    """Names of the four files; each may end in .gz as well."""

    train_images: str
    train_labels: str
    test_images: str
    test_labels: str


def _named(train: str, test: str) -> IdxFiles:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return IdxFiles(*(f"{split}-{kind}" for split in (train, test) for kind in kinds))


MNIST_FILES = _named("train", "t10k")
EMNIST_FILES = _named("emnist-byclass-train", "emnist-byclass-test")


@dataclass(frozen=True)
class IdxFormat:
    """Four idx files in a folder.

    Attributes:
        names: what they are called.
        sample_shape: (rows, columns) that the images must have.
        class_names: one for each class.
        transposed: the files hold columns for rows, as EMNIST's do; turn the images upright.
    """

    names: IdxFiles
    sample_shape: tuple[int, int]
    class_names: tuple[str, ...]
    transposed: bool = False

    @property
    def files(self) -> str:
        """The files that are expected."""
        return f"{self.names.train_images}[.gz] and its three companions"

    def read(self, folder: Path, limit: int) -> RawSet | None:
        """Read the first samples of each split; no more of the files than that is read."""
        found = find_files(folder, astuple(self.names), ("", ".gz"))
        if found is None:
            return None
        x_train, y_train = self._read_split(found[0], found[1], limit)
        x_test, y_test = self._read_split(found[2], found[3], limit)
        classes = len(self.class_names)
        return RawSet(x_train, y_train, x_test, y_test, classes, self.class_names)

    def _read_split(
        self, images: Path, labels: Path, limit: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        x, count = _read_idx(images, IMAGES, self.sample_shape, limit)
        y, named = _read_idx(labels, LABELS, (), limit)
        if named != count:
            raise InputError(f"{labels}: claims {named} labels: {images.name} has {count} images")
        if self.transposed:
            x = x.transpose(0, 2, 1)
        return x, check_labels(labels, y, 0, len(self.class_names) - 1)


def _read_idx(
    path: Path, magic: int, shape: tuple[int, ...], limit: int
) -> tuple[NDArray[np.uint8], int]:
    """The first entries, (at most limit, *shape), and how many the file has."""
    with _opened(path) as (stream, size):
        words = read_exactly(stream, 8 + 4 * len(shape), path)
        found, count, *dims = struct.unpack(f">{2 + len(shape)}I", words)
        if found != magic:
            raise InputError(f"{path}: begins with {found}: expected {magic}, as an idx file does")
        if tuple(dims) != shape:
            raise InputError(f"{path}: holds images of {tuple(dims)}: expected {shape}")
        if count == 0:
            raise InputError(f"{path}: claims 0 entries: expected at least 1")
        each = int(np.prod(shape, dtype=np.int64))
        if size is not None and size != len(words) + count * each:
            claim = f"claims {count} entries of {each} bytes"
            raise InputError(f"{path}: {claim}, holds {size - len(words)} bytes")
        taken = min(count, limit)
        content = read_exactly(stream, taken * each, path)
        # The read at the end is also where gzip compares its checksum.
        if taken == count and stream.read(1):
            raise InputError(f"{path}: goes on after the {count} entries it claims")
    return np.frombuffer(content, np.uint8).reshape(taken, *shape), count


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Bytes, int | None]]:
    """A stream of the plain content, and its size where the file states it."""
    with open_file(path) as (stream, size):
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=stream) as plain:
                yield plain, None
        else:
            yield stream, size
