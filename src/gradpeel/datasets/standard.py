"""The eight benchmark data sets of the paper, by name (paper, section "Experiments").

A set is looked up in a directory of yours, then in the cache, and otherwise downloaded; a directory
may hold `<name>.npz` or the original files. What is found may differ from the official variant;
`StandardSet.difference` says how.

    >>> sorted(STANDARD)
    ['cifar10', 'cifar100', 'emnist', 'fashion_mnist', 'harus', 'imagenet', 'mnist', 'svhn']
    >>> STANDARD["cifar10"].title, STANDARD["cifar10"].classes, STANDARD["cifar10"].sample_shape
    ('CIFAR-10', 10, (32, 32, 3))
"""

from __future__ import annotations

import os
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from gradpeel.datasets.dataset import Dataset, check_scaling, rescale
from gradpeel.datasets.download import DOWNLOADABLE, cache_folder, fetch
from gradpeel.datasets.npz import load_npz
from gradpeel.datasets.raw import RawSet, is_file, is_folder
from gradpeel.datasets.registry import STANDARD, StandardSet, imagenet
from gradpeel.errors import InputError

__all__ = ["STANDARD", "StandardSet", "first_samples", "load_standard"]

MAX_SAMPLES = 4096
MAX_BYTES = 2 * 2**30
MAX_IMAGE_SIZE = 1024


def load_standard(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    scaling: str = "minmax",
    image_size: int | None = None,
    limit: int | None = None,
    download: bool = True,
) -> Dataset:
    """Load one of the eight data sets.

    In `data_dir`, and then in the cache, are tried: `<name>.npz`, the original files (in
    `<name>/`, in the folder their archive makes or torchvision keeps, or, where their names cannot
    be mistaken, in the directory itself), and images in `<name>/train/<class>/`.

    Args:
        name: one of `STANDARD`.
        data_dir: a directory to look in first.
        scaling: how HARUS is scaled, as in `rescale`; the others are pixels in [0, 1].
        image_size: for ImageNet alone: height and width that images are scaled to, 64 if not
            given. An npz file of another size is refused.
        limit: the number of samples to take from each split, at most. By default as many as fit
            into 2 GiB, at most 4,096: EMNIST alone has 697,932.
        download: download what is not found, if torchvision and a network are available.

    Raises:
        InputError: it is found nowhere, a file is damaged, or an argument breaks a rule.

    Example:
        >>> import tempfile
        >>> x, y = np.zeros((10, 28, 28), np.uint8), np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder) / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        ...     load_standard("mnist", folder, limit=8)
        Dataset('mnist', train=8, test=8, sample_shape=(28, 28), classes=10)
    """
    spec = _choose(name, image_size)
    check_scaling(scaling, pixels_of=name if spec.is_image else None)
    count = _check_limit(limit, spec)
    folders = [] if data_dir is None else [Path(data_dir)]
    if data_dir is not None and not is_folder(folders[0]):
        raise InputError(f"data_dir={str(data_dir)!r}: no such directory")
    cache = cache_folder()
    for folder in (*folders, cache):
        dataset = _find(spec, folder, scaling, count)
        if dataset is not None:
            return dataset
    reason = _fetch(name, cache) if download else "download=False"
    if reason is None:
        dataset = _find(spec, cache, scaling, count)
        if dataset is not None:
            return dataset
        reason = f"{cache / name} lacks its files"
    raise InputError(_not_found(spec, (*folders, cache), reason))


def first_samples(dataset: Dataset, limit: int | None) -> Dataset:
    """The data set with at most the first `limit` samples of each split; None keeps all.

    Raises:
        InputError: `limit` is not a positive integer.
    """
    _check_positive("limit", limit)
    if limit is None or max(len(dataset.x_train), len(dataset.x_test)) <= limit:
        return dataset
    # Copies, so that the samples left out do not stay in memory.
    return replace(
        dataset,
        x_train=dataset.x_train[:limit].copy(),
        y_train=dataset.y_train[:limit].copy(),
        x_test=dataset.x_test[:limit].copy(),
        y_test=dataset.y_test[:limit].copy(),
    )


def _choose(name: str, image_size: int | None) -> StandardSet:
    if name not in STANDARD:
        raise InputError(f"data={name!r}: expected one of {', '.join(STANDARD)}")
    if image_size is None:
        return STANDARD[name]
    if name != "imagenet":
        rule = "only imagenet can be scaled"
        raise InputError(f"image_size={image_size!r}: {name} has images of one size: {rule}")
    _check_positive("image_size", image_size)
    if image_size > MAX_IMAGE_SIZE:
        raise InputError(f"image_size={image_size}: expected at most {MAX_IMAGE_SIZE}")
    return imagenet(image_size)


def _check_limit(limit: int | None, spec: StandardSet) -> int:
    _check_positive("limit", limit)
    return limit or max(1, min(MAX_SAMPLES, MAX_BYTES // (8 * prod(spec.sample_shape))))


def _check_positive(name: str, value: int | None) -> None:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and (not is_integer or value < 1):
        raise InputError(f"{name}={value!r}: expected a positive integer")


def _find(spec: StandardSet, folder: Path, scaling: str, limit: int) -> Dataset | None:
    """The data set as the first of its places within a folder holds it."""
    npz = folder / f"{spec.name}.npz"
    if is_file(npz):
        dataset = load_npz(npz, scaling)
        if dataset.sample_shape != spec.sample_shape:
            found = f"x_train has samples of shape {dataset.sample_shape}"
            raise InputError(f"{npz}: {found}: expected {spec.sample_shape} (nothing is resized)")
        return first_samples(dataset, limit)
    for place, format_ in spec.places:
        raw = format_.read(folder / place, limit)
        if raw is not None:
            return first_samples(_scaled(spec, raw, scaling), limit)
    return None


def _scaled(spec: StandardSet, raw: RawSet, scaling: str) -> Dataset:
    white = 255.0 if spec.is_image else 1.0
    dataset = Dataset(
        name=spec.name,
        x_train=raw.x_train / white,
        y_train=raw.y_train,
        x_test=raw.x_test / white,
        y_test=raw.y_test,
        classes=raw.classes,
        data_range=(0.0, 1.0) if spec.is_image else None,
        class_names=raw.class_names,
        feature_names=raw.feature_names,
    )
    return dataset if spec.is_image else rescale(dataset, scaling)


def _fetch(name: str, cache: Path) -> str | None:
    """Download a set; why it could not be done, or None."""
    if name not in DOWNLOADABLE:
        return "gradpeel knows no download of it"
    try:
        fetch(name, cache)
    except InputError as error:
        return str(error)
    return None


def _not_found(spec: StandardSet, folders: tuple[Path, ...], reason: str) -> str:
    """One line with the ways out."""
    looked = " or ".join(map(str, folders))
    place, format_ = spec.places[0]
    put = f"put {spec.name}.npz, or a folder {place} with {format_.files}, into a directory"
    put = f"{put} and give it as --data-dir"
    found = f"data={spec.name!r}: not in {looked}, and not downloaded: {reason}"
    if spec.source is not None:
        return f"{found}. Get it from {spec.source}, {put}"
    return f"{found}. Either {put}, or pip install 'gradpeel[datasets]' and be online"
