"""Images in a folder for each class: train/<class>/ and val/<class>/ or test/<class>/.

The k-th image of each class comes in turn, so that a short prefix holds all classes; classes and
files are sorted by name, numbers within names by value (`n01_2` before `n01_10`). Tiny-ImageNet's
layout is read too: train/<class>/images/, and val/images/ in the order of val_annotations.txt.
Links, hidden files and files that are not called like images are passed over.

    >>> sorted(["n01_10.png", "n01_2.png"], key=natural)
    ['n01_2.png', 'n01_10.png']
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.raw import RawSet, is_file, is_folder, read_text, told_in_one_line
from gradpeel.errors import InputError

__all__ = ["ImageFolderFormat", "natural"]

ENDINGS = (".jpeg", ".jpg", ".png", ".bmp")
# ImageNet holds a PNG that is called .JPEG: the content decides what a file is.
FORMATS = ("JPEG", "PNG", "BMP")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
MAX_PIXELS = 2**26


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Key to sort names by, numbers in them by value."""
    words = re.findall(r"[0-9]+|[^0-9]+", name)
    # Beyond 4300 digits Python makes no integer; no file name is that long.
    keys = [(0, int(w), "") if w.isascii() and w.isdigit() else (1, 0, w) for w in words]
    return keys, name


@dataclass(frozen=True)
class ImageFolderFormat:
    """A folder of image folders.

    Attributes:
        sample_shape: what an image becomes: (size, size) in grey or (size, size, 3) in colour.
        resize: scale the shorter side and cut out the centre; otherwise an image of another size
            is refused.
    """

    sample_shape: tuple[int, ...]
    resize: bool = False

    @property
    def files(self) -> str:
        """The files that are expected."""
        return "train/<class>/ and val/<class>/ or test/<class>/ with images"

    def read(self, folder: Path, limit: int) -> RawSet | None:
        """Read the first images of each split."""
        train = folder / "train"
        if not is_folder(train):
            return None
        images = _list_classes(train)
        if len(images) < 2:
            raise InputError(f"{train}: holds {len(images)} class folders: expected at least 2")
        names = tuple(sorted(images, key=natural))
        labels = {name: label for label, name in enumerate(names)}
        x_train, y_train = self._read_images(train, _in_turn(images), labels, limit)
        test, listed = _list_test(folder)
        x_test, y_test = self._read_images(test, listed, labels, limit)
        return RawSet(x_train, y_train, x_test, y_test, len(names), names)

    def _read_images(
        self,
        folder: Path,
        images: Iterator[tuple[Path, str]],
        labels: Mapping[str, int],
        limit: int,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        x, y = [], []
        for path, name in islice(images, limit):
            if name not in labels:
                raise InputError(f"{path}: class {name!r}: expected one of those in train")
            x.append(self._read_image(path))
            y.append(labels[name])
        if not x:
            raise InputError(f"{folder}: holds no images: expected {self.files}")
        return np.stack(x), np.array(y)

    def _read_image(self, path: Path) -> NDArray[np.uint8]:
        # Pillow takes time to import, and npz files do not need it.
        from PIL import Image  # noqa: PLC0415

        with told_in_one_line(path), warnings.catch_warnings():
            # Pillow warns of odd metadata, which does not matter, and of bombs, rejected below.
            warnings.simplefilter("ignore")
            try:
                image = Image.open(path, formats=FORMATS)
            except Image.DecompressionBombError:
                raise InputError(f"{path}: expected at most {MAX_PIXELS} pixels") from None
            with image:
                width, height = image.size
                # The size is in the header; the pixels are unpacked later.
                if width * height > MAX_PIXELS:
                    found = f"has {width} x {height} pixels"
                    raise InputError(f"{path}: {found}: expected at most {MAX_PIXELS} pixels")
                if image.mode not in MODES:
                    rule = f"expected one of {', '.join(MODES)}"
                    raise InputError(f"{path}: has colour mode {image.mode}: {rule}")
                colours = image.convert("RGB" if len(self.sample_shape) == 3 else "L")
            side = self.sample_shape[0]
            if (width, height) != (side, side):
                if not self.resize:
                    rule = f"expected {side} x {side}"
                    raise InputError(f"{path}: has {width} x {height} pixels: {rule}")
                # Cut before scaling: a picture of one row would else be scaled to a giant.
                short = min(width, height)
                left, top = (width - short) / 2, (height - short) / 2
                box = (left, top, left + short, top + short)
                colours = colours.resize((side, side), Image.Resampling.BILINEAR, box=box)
            return np.asarray(colours, dtype=np.uint8)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror or error}") from None


def _list_images(folder: Path) -> list[Path]:
    names = [
        entry.name
        for entry in _entries(folder)
        if entry.name.lower().endswith(ENDINGS) and entry.is_file(follow_symlinks=False)
    ]
    return [folder / name for name in sorted(names, key=natural)]


def _list_classes(folder: Path) -> dict[str, list[Path]]:
    """The images of each class, sorted."""
    classes = {}
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            place = folder / entry.name
            inner = place / "images"
            classes[entry.name] = _list_images(inner if is_folder(inner) else place)
    return classes


def _in_turn(classes: Mapping[str, Sequence[Path]]) -> Iterator[tuple[Path, str]]:
    """The first image of each class, then the second of each, and so on."""
    names = sorted(classes, key=natural)
    for images in zip_longest(*(classes[name] for name in names)):
        yield from ((path, name) for path, name in zip(images, names, strict=True) if path)


def _list_test(folder: Path) -> tuple[Path, Iterator[tuple[Path, str]]]:
    """Where the test split is, and its images; ILSVRC's and Tiny-ImageNet's test has no labels."""
    test = next((folder / name for name in ("val", "test") if is_folder(folder / name)), None)
    if test is None:
        raise InputError(f"{folder}: val and test missing: expected one of them beside train")
    annotations = test / "val_annotations.txt"
    if is_file(annotations):
        return test, _read_annotations(annotations)
    return test, _in_turn(_list_classes(test))


def _read_annotations(path: Path) -> Iterator[tuple[Path, str]]:
    """The images of a file of lines that begin with name and class."""
    for number, line in enumerate(read_text(path), 1):
        name, _, rest = line.partition("\t")
        # A name with a slash would lead out of the folder.
        if not rest or not name.lower().endswith(ENDINGS) or re.search(r"[/\\:\0]", name):
            rule = "expected the name of an image and its class"
            raise InputError(f"{path}: line {number} is {line[:40]!r}: {rule}")
        image = path.parent / "images" / name
        if image.is_symlink() or not is_file(image):
            raise InputError(f"{image}: no such file: {path.name} names it")
        yield image, rest.split("\t")[0]
