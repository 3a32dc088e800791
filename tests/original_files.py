"""Writers of small files in the exact formats the standard data sets are published in."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

Pixels = NDArray[np.uint8]


def pixels(count: int, *shape: int, seed: int = 0) -> Pixels:
    """Random images."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def idx_bytes(array: Pixels) -> bytes:
    """An idx file of unsigned bytes: its magic number ends with the number of dimensions."""
    header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    return header + array.tobytes()


def write_idx(
    folder: Path,
    x: Pixels,
    y: NDArray[Any],
    *,
    prefix: str = "",
    test: str = "t10k",
    gz: bool = False,
) -> dict[str, Path]:
    """The four files; the test split is the training split backwards."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for split, order in ((f"{prefix}train", 1), (f"{prefix}{test}", -1)):
        for kind, array in (("images-idx3-ubyte", x), ("labels-idx1-ubyte", y.astype(np.uint8))):
            content = idx_bytes(np.ascontiguousarray(array[::order]))
            path = folder / (f"{split}-{kind}" + (".gz" if gz else ""))
            path.write_bytes(gzip.compress(content) if gz else content)
            paths[f"{split}-{kind}"] = path
    return paths


def cifar_bytes(x: Pixels, *labels: NDArray[Any]) -> bytes:
    """Records of CIFAR's binary version; `x` is (n, 32, 32, 3)."""
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return np.column_stack([*(y.astype(np.uint8) for y in labels), planes]).tobytes()


def write_cifar10(folder: Path, x: Pixels, y: NDArray[Any]) -> None:
    """Five training batches of equal size; the test batch is the training split backwards."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(np.split(np.arange(len(x)), 5), 1):
        (folder / f"data_batch_{i}.bin").write_bytes(cifar_bytes(x[part], y[part]))
    (folder / "test_batch.bin").write_bytes(cifar_bytes(x[::-1], y[::-1]))


def write_cifar100(folder: Path, x: Pixels, y: NDArray[Any]) -> None:
    """Coarse labels are the fine ones modulo 20."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.bin").write_bytes(cifar_bytes(x, y % 20, y))
    (folder / "test.bin").write_bytes(cifar_bytes(x[::-1], y[::-1] % 20, y[::-1]))


def write_svhn(
    folder: Path, x: Pixels, y: NDArray[Any], *, compress: bool = True, **more: NDArray[Any]
) -> None:
    """`x` is (n, 32, 32, 3), `y` the digits 0..9."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, order in (("train", 1), ("test", -1)):
        digits = np.where(y == 0, 10, y)[::order].astype(np.uint8)[:, None]
        arrays = more | {"X": x[::order].transpose(1, 2, 3, 0), "y": digits}
        savemat(folder / f"{split}_32x32.mat", arrays, do_compression=compress)


def write_har(folder: Path, x: NDArray[np.float64], y: NDArray[Any], *, names: bool = True) -> None:
    """UCI's text files, numbers as there; the test split is the training split backwards."""
    for split, order in (("train", 1), ("test", -1)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        # The original has two blanks before a positive number, one before a minus.
        lines = ["".join(f" {value: .7e}" for value in row) for row in x[::order]]
        (folder / split / f"X_{split}.txt").write_text("\n".join(lines) + "\n")
        labels = "\n".join(str(label + 1) for label in y[::order])
        (folder / split / f"y_{split}.txt").write_text(labels + "\n")
    if names:
        features = [f"{i} feature-{i}()" for i in range(1, 562)]
        (folder / "features.txt").write_text("\n".join(features) + "\n")
        activities = ["WALKING", "UP", "DOWN", "SITTING", "STANDING", "LAYING"]
        listed = "".join(f"{i} {name}\n" for i, name in enumerate(activities, 1))
        (folder / "activity_labels.txt").write_text(listed)


def write_images(folder: Path, images: dict[str, Pixels]) -> None:
    """PNG files by their path within the folder."""
    for name, image in images.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, format="PNG")


def edit(path: Path, change: Callable[[bytearray], bytes | bytearray]) -> None:
    """Damage a file."""
    path.write_bytes(change(bytearray(path.read_bytes())))
