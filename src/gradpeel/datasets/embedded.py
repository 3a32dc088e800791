"""Data sets that need no download: they are part of the package.

`digits`: 1797 scans of handwritten digits, 8 x 8. `breast_cancer`: 30 clinical features of 569
patients. `photos`: two colour photographs cut into tiles, one the client's batch, the other what
the server owns. All come in a fixed order, so that a batch is the same on every machine.

    >>> from gradpeel.datasets import assemble, draw_batch, load
    >>> tiles = draw_batch(load("photos"), 260).x.numpy()
    >>> recovered = np.arange(260) % 7 > 0
    >>> assemble(tiles, recovered).shape
    (416, 640, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.dataset import Dataset, check_scaling, rescale
from gradpeel.errors import InputError

__all__ = ["EMBEDDED", "assemble", "load_embedded"]

DIGITS_TRAIN = 1200
BREAST_CANCER_TRAIN = 400

# A photograph has 427 x 640 pixels; its lowest 11 rows make no whole tile and are cut off.
TILE, ROWS, COLUMNS = 32, 13, 20
TILES = ROWS * COLUMNS
BRIGHTNESSES = 10
GREY = 0.5


def load_embedded(name: str, scaling: str = "minmax") -> Dataset:
    """Load `digits`, `breast_cancer` or `photos`.

    Args:
        name: one of `EMBEDDED`.
        scaling: how `breast_cancer` is scaled, as in `rescale`; the others are pixels in [0, 1].

    Raises:
        InputError: the name is none of them, `scaling` is unknown or not for pixels, or Pillow,
            which reads the photographs, is missing.

    Example:
        >>> load_embedded("digits")
        Dataset('digits', train=1200, test=597, sample_shape=(8, 8), classes=10)
        >>> load_embedded("breast_cancer").class_names
        ('malignant', 'benign')
    """
    if name not in _LOADERS:
        raise InputError(f"data={name!r}: expected one of {', '.join(EMBEDDED)}")
    return _LOADERS[name](scaling)


def assemble(tiles: NDArray[np.floating[Any]], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Put the tiles of a photograph together again.

    Args:
        tiles: (n, 32, 32, 3), the first n tiles of `photos` in reading order, n at most 260; what
            a missing tile holds does not matter.
        present: (n,), which of them to show.

    Returns:
        The photograph, (416, 640, 3), grey where no tile is.

    Raises:
        InputError: the tiles or the mask have another shape.

    Example:
        >>> tiles = load_embedded("photos").x_train
        >>> picture = assemble(tiles, np.arange(260) > 0)
        >>> picture[0, 0].tolist(), bool((picture[:32, 32:64] == tiles[1]).all())
        ([0.5, 0.5, 0.5], True)
    """
    if tiles.shape[1:] != (TILE, TILE, 3) or len(tiles) > TILES:
        rule = f"expected at most {TILES} of shape ({TILE}, {TILE}, 3)"
        raise InputError(f"tiles has shape {tiles.shape}: {rule}")
    if present.dtype != np.bool_ or present.shape != (len(tiles),):
        found = f"present has shape {present.shape} and dtype {present.dtype}"
        raise InputError(f"{found}: expected ({len(tiles)},) and bool")
    shown = np.full((TILES, TILE, TILE, 3), GREY)
    shown[np.flatnonzero(present)] = tiles[present]
    grid = shown.reshape(ROWS, COLUMNS, TILE, TILE, 3)
    return grid.swapaxes(1, 2).reshape(ROWS * TILE, COLUMNS * TILE, 3)


def _cut(photograph: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The tiles of a (427, 640, 3) photograph in reading order, (260, 32, 32, 3) in [0, 1]."""
    grid = photograph[: ROWS * TILE].reshape(ROWS, TILE, COLUMNS, TILE, 3)
    return np.asarray(grid.swapaxes(1, 2).reshape(TILES, TILE, TILE, 3) / 255, dtype=np.float64)


def _open(name: str) -> IO[bytes]:
    """A file of the package; files/README.md says where each is from."""
    return resources.files(__package__).joinpath("files", name).open("rb")


def _arrays(name: str) -> dict[str, NDArray[Any]]:
    with _open(name) as stream, np.load(stream, allow_pickle=False) as arrays:
        return dict(arrays)


def _load_digits(scaling: str) -> Dataset:
    """The first 1200 scans train, the other 597 test, in the order of their source."""
    check_scaling(scaling, pixels_of="digits")
    source = _arrays("digits.npz")
    x, y = source["images"] / 16, source["labels"].astype(np.int64)
    return Dataset(
        name="digits",
        x_train=x[:DIGITS_TRAIN],
        y_train=y[:DIGITS_TRAIN],
        x_test=x[DIGITS_TRAIN:],
        y_test=y[DIGITS_TRAIN:],
        classes=10,
        data_range=(0.0, 1.0),
        class_names=tuple(str(digit) for digit in range(10)),
    )


def _load_breast_cancer(scaling: str) -> Dataset:
    """400 patients train, 169 test, the two classes evenly mixed.

    The source begins with a run of malignant cases, so a small batch would hold little
    else. Here the k-th patient of a class stands at the share k / size of that class: the first B
    patients hold both classes in the proportion of the whole, without a random number.
    """
    source = _arrays("breast_cancer.npz")
    x, y = source["features"], source["labels"].astype(np.int64)
    share = np.empty(len(y))
    for label in (0, 1):
        members = np.flatnonzero(y == label)
        share[members] = (np.arange(len(members)) + 0.5) / len(members)
    order = np.argsort(share, kind="stable")
    train, test = order[:BREAST_CANCER_TRAIN], order[BREAST_CANCER_TRAIN:]
    dataset = Dataset(
        name="breast_cancer",
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=2,
        feature_names=tuple(source["feature_names"].tolist()),
        class_names=tuple(source["class_names"].tolist()),
    )
    return rescale(dataset, scaling)


def _load_photos(scaling: str) -> Dataset:
    """The flower's 260 tiles train, those of the Chinese palace test.

    A tile's label is the tenth of its photograph's tiles it belongs to by brightness: 0 for the
    26 darkest, 9 for the 26 brightest.
    """
    check_scaling(scaling, pixels_of="photos")
    x_train, x_test = _cut(_read_photo("flower.jpg")), _cut(_read_photo("china.jpg"))
    return Dataset(
        name="photos",
        x_train=x_train,
        y_train=_rank_brightness(x_train),
        x_test=x_test,
        y_test=_rank_brightness(x_test),
        classes=BRIGHTNESSES,
        data_range=(0.0, 1.0),
        class_names=tuple(f"brightness {i}" for i in range(BRIGHTNESSES)),
    )


def _read_photo(name: str) -> NDArray[np.uint8]:
    try:
        from PIL import Image  # noqa: PLC0415 -- only photographs need it
    except ImportError:
        raise InputError("data='photos': expected Pillow, which reads JPEG, installed") from None
    with _open(name) as stream, Image.open(stream) as photograph:
        return np.asarray(photograph, dtype=np.uint8)


def _rank_brightness(tiles: NDArray[np.float64]) -> NDArray[np.int64]:
    rank = np.argsort(np.argsort(tiles.mean(axis=(1, 2, 3)), kind="stable"))
    return rank * BRIGHTNESSES // len(tiles)


_LOADERS: dict[str, Callable[[str], Dataset]] = {
    "digits": _load_digits,
    "breast_cancer": _load_breast_cancer,
    "photos": _load_photos,
}

EMBEDDED = tuple(_LOADERS)
"""Names of the embedded data sets."""
