"""What is known of the paper's eight data sets before they are read.

>>> [spec.title for spec in STANDARD.values()][:4]
['CIFAR-10', 'CIFAR-100', 'MNIST', 'EMNIST']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradpeel.datasets.cifar import CIFAR10, CIFAR100
from gradpeel.datasets.class_names import DIGITS, EMNIST_CLASSES, FASHION_CLASSES
from gradpeel.datasets.dataset import Dataset
from gradpeel.datasets.har import HarFormat
from gradpeel.datasets.idx import EMNIST_FILES, MNIST_FILES, IdxFormat
from gradpeel.datasets.image_folder import ImageFolderFormat
from gradpeel.datasets.raw import Format
from gradpeel.datasets.svhn import SvhnFormat

__all__ = ["STANDARD", "StandardSet", "imagenet"]


@dataclass(frozen=True)
class StandardSet:
    """What is known of a data set before it is read.

    Attributes:
        name: what it is loaded by.
        title: what the paper calls it.
        classes: number of classes of the official set.
        sample_shape: shape of a sample.
        places: folders within a directory, and the format of the files expected there.
        first_labels: the first labels of the official training split; empty where not known.
        source: where people get it who cannot have it downloaded.
    """

    name: str
    title: str
    classes: int
    sample_shape: tuple[int, ...]
    places: tuple[tuple[str, Format], ...]
    first_labels: tuple[int, ...] = ()
    source: str | None = None

    @property
    def is_image(self) -> bool:
        """Are its samples pixels?"""
        return len(self.sample_shape) > 1

    def difference(self, dataset: Dataset) -> str | None:
        """How a loaded data set differs from the official one, in a few words, or None.

        Compared are the number of classes and, where they are known, the first labels of the
        training split, which tell another split or order. None is no proof: neither samples nor
        how many there are is compared.

        Example:
            >>> import numpy as np
            >>> x, y = np.zeros((2, 28, 28)), np.array([0, 25])
            >>> STANDARD["emnist"].difference(Dataset("emnist", x, y, x, y, classes=26))
            '26 classes instead of 62'
        """
        if dataset.classes != self.classes:
            return f"{dataset.classes} classes instead of {self.classes}"
        first = tuple(dataset.y_train[: len(self.first_labels)].tolist())
        if first != self.first_labels[: len(first)]:
            return "not the official training split in its order"
        return None


def _places(
    name: str, format_: Format, *folders: str, images: tuple[int, ...]
) -> tuple[tuple[str, Format], ...]:
    """The original files in each folder, then a folder of images called like the set."""
    originals = tuple((folder, format_) for folder in (name, *folders))
    return (*originals, (name, ImageFolderFormat(images)))


def imagenet(size: int) -> StandardSet:
    """ImageNet scaled to height and width `size`."""
    shape = (size, size, 3)
    images = ImageFolderFormat(shape, resize=True)
    folders = ("imagenet", "tiny-imagenet-200", "imagenet/tiny-imagenet-200", ".")
    return StandardSet(
        name="imagenet",
        title="ImageNet",
        classes=1000,
        sample_shape=shape,
        places=tuple((folder, images) for folder in folders),
        source="image-net.org (ILSVRC 2012; with an account)",
    )


_COLOUR, _GREY = (32, 32, 3), (28, 28)

_SETS = (
    StandardSet(
        name="cifar10",
        title="CIFAR-10",
        classes=10,
        sample_shape=_COLOUR,
        places=_places(
            *("cifar10", CIFAR10, "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "."),
            "cifar-10-batches-py",
            images=_COLOUR,
        ),
        first_labels=(6, 9, 9, 4, 1, 1, 2, 7, 8, 3),
    ),
    StandardSet(
        name="cifar100",
        title="CIFAR-100",
        classes=100,
        sample_shape=_COLOUR,
        places=_places(
            *("cifar100", CIFAR100, "cifar-100-binary", "cifar100/cifar-100-binary", "."),
            "cifar-100-python",
            images=_COLOUR,
        ),
        first_labels=(19, 29, 0, 11, 1, 86, 90, 28, 23, 31),
    ),
    StandardSet(
        name="mnist",
        title="MNIST",
        classes=10,
        sample_shape=_GREY,
        # Not the directory itself: Fashion-MNIST's files have the same names.
        places=_places(
            "mnist", IdxFormat(MNIST_FILES, _GREY, DIGITS), "MNIST/raw", "MNIST", images=_GREY
        ),
        first_labels=(5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    ),
    StandardSet(
        name="emnist",
        title="EMNIST",
        classes=62,
        sample_shape=_GREY,
        places=_places(
            "emnist",
            IdxFormat(EMNIST_FILES, _GREY, EMNIST_CLASSES, transposed=True),
            *("emnist/gzip", "gzip", "EMNIST/raw", "EMNIST", "."),
            images=_GREY,
        ),
    ),
    StandardSet(
        name="fashion_mnist",
        title="Fashion-MNIST",
        classes=10,
        sample_shape=_GREY,
        places=_places(
            "fashion_mnist",
            IdxFormat(MNIST_FILES, _GREY, FASHION_CLASSES),
            *("FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
            images=_GREY,
        ),
        first_labels=(9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    ),
    StandardSet(
        name="svhn",
        title="SVHN",
        classes=10,
        sample_shape=_COLOUR,
        places=_places("svhn", SvhnFormat(), "SVHN", ".", images=_COLOUR),
        first_labels=(1, 9, 2, 3, 2, 5, 9, 3, 3, 1),
    ),
    imagenet(64),
    StandardSet(
        name="harus",
        title="HARUS",
        classes=6,
        sample_shape=(561,),
        places=tuple(
            (folder, HarFormat())
            for folder in ("harus", "UCI HAR Dataset", "harus/UCI HAR Dataset", ".")
        ),
        first_labels=(4,) * 10,
        source="the UCI Machine Learning Repository (data set 240)",
    ),
)

STANDARD: Mapping[str, StandardSet] = {spec.name: spec for spec in _SETS}
"""The eight data sets by name."""
