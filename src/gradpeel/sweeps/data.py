"""The data sets of a sweep: where they come from, and how to tell them apart."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from gradpeel.datasets import EMBEDDED, Dataset, load
from gradpeel.datasets.standard import STANDARD
from gradpeel.errors import InputError

__all__ = ["DataSource", "fingerprint"]


@dataclass(frozen=True)
class DataSource:
    """Where the data sets of a plan are found; small, so that it can be sent to a worker.

    Attributes:
        data_dir: directory of the named data sets.
        image_size: side of ImageNet's pictures.
        base: what paths of files are relative to.
        fingerprints: by name, what the data is known to be; other data is refused.
    """

    data_dir: Path | None = None
    image_size: int | None = None
    base: Path = Path()
    fingerprints: tuple[tuple[str, str], ...] = ()

    def check(self, name: str) -> None:
        """Refuse what is neither the name of a data set nor a file, without loading anything.

        Raises:
            InputError: that is so.
        """
        if name not in EMBEDDED and name not in STANDARD and not (self.base / name).exists():
            known = ", ".join((*EMBEDDED, *STANDARD))
            raise InputError(f"no such file, and none of {known}")

    def load(self, name: str) -> Dataset:
        """Load a data set by name or path.

        Raises:
            InputError: there is no such data set, it breaks a rule, or it is not what it was.
        """
        if name in EMBEDDED:
            dataset = load(name)
        elif name in STANDARD:
            # ImageNet alone comes in two sizes.
            size = self.image_size if name == "imagenet" else None
            dataset = load(name, data_dir=self.data_dir, image_size=size)
        else:
            dataset = load(self.base / name)
        known = dict(self.fingerprints).get(name)
        if known is not None and fingerprint(dataset) != known:
            raise InputError(f"{name}: changed while the sweep ran: expected the same data")
        return dataset


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
