"""The cropped digits of SVHN, as train_32x32.mat and test_32x32.mat hold them.

`X` is (row, column, colour, image), `y` the digit, where 10 stands for 0.

    >>> SvhnFormat().files
    'train_32x32.mat and test_32x32.mat'
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.class_names import DIGITS
from gradpeel.datasets.mat import read_arrays
from gradpeel.datasets.raw import RawSet, check_labels, find_files
from gradpeel.errors import InputError

__all__ = ["SvhnFormat"]

IMAGE = (32, 32, 3)


@dataclass(frozen=True)
class SvhnFormat:
    """The two files in a folder."""

    files: str = "train_32x32.mat and test_32x32.mat"

    def read(self, folder: Path, limit: int) -> RawSet | None:
        """Read the first samples of each split; no more of the files than that is unpacked."""
        found = find_files(folder, ("train_32x32.mat", "test_32x32.mat"))
        if found is None:
            return None
        train, test = (_read_split(path, limit) for path in found)
        return RawSet(*train, *test, len(DIGITS), DIGITS)


def _read_split(path: Path, limit: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    arrays = read_arrays(path, {"X": limit * int(np.prod(IMAGE)), "y": limit})
    x, y = arrays["X"], arrays["y"]
    if x.shape[:3] != IMAGE or len(x.shape) != 4 or x.shape[3] < 1 or x.numbers.dtype != np.uint8:
        found = f"X has shape {x.shape} of {x.numbers.dtype}"
        raise InputError(f"{path}: {found}: expected (32, 32, 3, images) of uint8")
    if sorted(y.shape) != sorted((1, x.shape[3])):
        raise InputError(f"{path}: y has shape {y.shape}: expected ({x.shape[3]}, 1) as X has")
    # The file's last axis runs slowest, so it is the first one here.
    images = x.numbers.reshape(-1, *reversed(IMAGE)).transpose(0, 3, 2, 1)
    digits = check_labels(path, y.numbers, 1, 10) + 1
    return images, digits % 10
