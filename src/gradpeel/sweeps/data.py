"""The data sets of a sweep: where they come from, and how to tell them apart."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from gradpeel.datasets import EMBEDDED, Dataset, load

__all__ = ["DataSource", "fingerprint"]


@dataclass(frozen=True)
class DataSource:
    """Where the data sets of a plan are found; small, so that it can be sent to a worker.

    Attributes:
        data_dir: directory of the named data sets.
        image_size: side of ImageNet's pictures.
        base: what paths of files are relative to.
    """

    data_dir: Path | None = None
    image_size: int | None = None
    base: Path = Path()

    def load(self, name: str) -> Dataset:
        """Load a data set by name or path.

        Raises:
            InputError: there is no such data set, or it breaks a rule.
        """
        if name.endswith(".npz"):
            return load(self.base / name)
        if name in EMBEDDED:
            return load(name)
        # ImageNet alone comes in two sizes.
        size = self.image_size if name == "imagenet" else None
        return load(name, data_dir=self.data_dir, image_size=size)


def fingerprint(dataset: Dataset) -> str:
    """A hash of all samples and labels: rows of one store must be about the same data.

    Example:
        >>> from gradpeel.datasets import load
        >>> fingerprint(load("digits")) == fingerprint(load("breast_cancer"))
        False
    """
    digest = hashlib.sha256()
    for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test):
        digest.update(repr((array.shape, str(array.dtype))).encode())
        digest.update(array.data)
    return digest.hexdigest()[:24]
