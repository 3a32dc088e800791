"""The text files of UCI's Human Activity Recognition Using Smartphones, the paper's HARUS.

`train/X_train.txt` has 561 numbers on a line, `train/y_train.txt` an activity from 1 to 6; the
same for `test`. All lines are read whatever the limit is, because features are scaled by the
training split and its scale must not depend on how much of it is used.

    >>> HarFormat().files
    'train/X_train.txt, train/y_train.txt, test/X_test.txt and test/y_test.txt'
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.class_names import HAR_CLASSES
from gradpeel.datasets.raw import RawSet, check_labels, find_files, is_file, open_file, read_text
from gradpeel.errors import InputError

__all__ = ["HarFormat"]

NAMES = tuple(f"{split}/{array}_{split}.txt" for split in ("train", "test") for array in "Xy")
FEATURES = 561
# A line of the original has 8976 characters; the files have 66 and 26 MB.
MAX_LINE = 2**16
MAX_BYTES = 2**28


@dataclass(frozen=True)
class HarFormat:
    """The folder "UCI HAR Dataset"."""

    files: str = f"{', '.join(NAMES[:3])} and {NAMES[3]}"

    def read(self, folder: Path, limit: int) -> RawSet | None:  # noqa: ARG002 -- see above
        """Read both splits whole, unscaled."""
        found = find_files(folder, NAMES)
        if found is None:
            return None
        train, test = (_read_split(x, y) for x, y in (found[:2], found[2:]))
        return RawSet(
            *train,
            *test,
            classes=len(HAR_CLASSES),
            class_names=_read_names(folder / "activity_labels.txt", len(HAR_CLASSES))
            or HAR_CLASSES,
            feature_names=_read_names(folder / "features.txt", FEATURES),
        )


def _read_split(x: Path, y: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    samples, labels = _read_rows(x), []
    for i, line in enumerate(read_text(y)):
        if not line.isascii() or not line.isdigit() or len(line) > 4:
            raise InputError(f"{y}: label[{i}]={line[:20]!r}: expected a label in 1..6")
        labels.append(int(line))
    if len(labels) != len(samples):
        raise InputError(f"{y}: has {len(labels)} labels: {x.name} has {len(samples)} samples")
    return samples, check_labels(y, np.array(labels), 1, len(HAR_CLASSES))


def _read_rows(path: Path) -> NDArray[np.float64]:
    rows: list[NDArray[np.float64]] = []
    with open_file(path) as (stream, size):
        if size > MAX_BYTES:
            raise InputError(f"{path}: has {size} bytes: expected at most {MAX_BYTES}")
        # Line by line, and no line without an end: what is read stays in proportion to the file.
        while line := stream.readline(MAX_LINE):
            words = line.split()
            if not words:
                continue
            if len(words) != FEATURES:
                place = f"line {len(rows) + 1} has {len(words)} numbers"
                raise InputError(f"{path}: {place}: expected {FEATURES}")
            rows.append(_parse_row(words, path, len(rows) + 1))
    if not rows:
        raise InputError(f"{path}: is empty: expected {FEATURES} numbers on each line")
    return np.stack(rows)


def _parse_row(words: list[bytes], path: Path, number: int) -> NDArray[np.float64]:
    try:
        row = np.array([float(word) for word in words])
    except ValueError as error:
        raise InputError(f"{path}: line {number}: {error}: expected numbers") from None
    if not np.isfinite(row).all():
        raise InputError(f"{path}: line {number}: expected finite numbers")
    return row


def _read_names(path: Path, count: int) -> tuple[str, ...] | None:
    """The names in a file of lines such as "1 WALKING"; None where it is missing."""
    if not is_file(path):
        return None
    names = []
    for number, line in enumerate(read_text(path), 1):
        index, _, name = line.partition(" ")
        if index != str(number) or not name:
            rule = f"expected {number} and a name"
            raise InputError(f"{path}: line {number} is {line[:40]!r}: {rule}")
        names.append(name.strip())
    if len(names) != count:
        raise InputError(f"{path}: holds {len(names)} names: expected {count}")
    return tuple(names)
