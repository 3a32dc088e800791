"""The binary version of CIFAR-10 and CIFAR-100.

A file is a row of records: one label byte (CIFAR-100: the coarse label, then the fine one) and
3072 pixels, first all red ones, then green, then blue, each 32 rows of 32. The python version of
the archives is pickled and is refused, because unpickling runs what a file's author wrote.

    >>> CIFAR10.files
    'data_batch_1.bin to data_batch_5.bin and test_batch.bin'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.class_names import CIFAR10_CLASSES, CIFAR100_CLASSES
from gradpeel.datasets.raw import (
    RawSet,
    check_labels,
    find_files,
    is_file,
    open_file,
    read_exactly,
)
from gradpeel.errors import InputError

__all__ = ["CIFAR10", "CIFAR100", "CifarFormat"]

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarFormat:
    """The files of one of the two.

    Attributes:
        files: what is expected, in a few words.
        train: files of the training split, in order.
        test: the file of the test split.
        labels: number of values of each label byte; the last is the class.
        class_names: one for each class.
        pickled: a file by which the python version is known.
        archive: the archive to take in its place.
    """

    files: str
    train: tuple[str, ...]
    test: str
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    pickled: tuple[str, ...]
    archive: str

    def read(self, folder: Path, limit: int) -> RawSet | None:
        """Read the first samples of each split; no more of the files than that is read."""
        found = find_files(folder, (*self.train, self.test))
        if found is None:
            if all(is_file(folder / name) for name in self.pickled):
                rule = f"expected the binary version, {self.archive} (nothing is unpickled)"
                raise InputError(f"{folder}: holds the pickled python version: {rule}")
            return None
        x_train, y_train = self._read_split(found[:-1], limit)
        x_test, y_test = self._read_split(found[-1:], limit)
        classes = len(self.class_names)
        return RawSet(x_train, y_train, x_test, y_test, classes, self.class_names)

    def _read_split(
        self, paths: Sequence[Path], limit: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images, labels, left = [], [], limit
        for path in paths:
            if left == 0:
                break
            x, y = self._read_file(path, left)
            images.append(x)
            labels.append(y)
            left -= len(x)
        return np.concatenate(images), np.concatenate(labels)

    def _read_file(self, path: Path, limit: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        record = len(self.labels) + PIXELS
        with open_file(path) as (stream, size):
            if size == 0 or size % record:
                rule = f"expected a multiple of {record}, the size of a record"
                raise InputError(f"{path}: has {size} bytes: {rule}")
            taken = min(size // record, limit)
            content = read_exactly(stream, taken * record, path)
        records = np.frombuffer(content, np.uint8).reshape(taken, record)
        for byte, values in enumerate(self.labels):
            # The coarse label, too: a file of other records shows itself there first.
            y = check_labels(path, records[:, byte], 0, values - 1)
        pixels = records[:, len(self.labels) :].reshape(taken, 3, 32, 32)
        return pixels.transpose(0, 2, 3, 1), y


CIFAR10 = CifarFormat(
    files="data_batch_1.bin to data_batch_5.bin and test_batch.bin",
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test="test_batch.bin",
    labels=(10,),
    class_names=CIFAR10_CLASSES,
    pickled=("data_batch_1",),
    archive="cifar-10-binary.tar.gz",
)

CIFAR100 = CifarFormat(
    files="train.bin and test.bin",
    train=("train.bin",),
    test="test.bin",
    labels=(20, 100),
    class_names=CIFAR100_CLASSES,
    pickled=("train", "meta"),
    archive="cifar-100-binary.tar.gz",
)
