from __future__ import annotations

import os
import re
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gradpeel.datasets.image_folder import ImageFolderFormat, natural
from gradpeel.errors import InputError
from original_files import Pixels, pixels, write_images

GREY = ImageFolderFormat((4, 4))
COLOUR = ImageFolderFormat((4, 4, 3), resize=True)


def flat(value: int, *shape: int) -> Pixels:
    return np.full(shape or (4, 4), value, np.uint8)


def small() -> dict[str, Pixels]:
    """Three images of a, one of b, two of c; one of a and b each to test."""
    train = {"a/1": 11, "a/2": 12, "a/10": 20, "b/1": 31, "c/x": 41, "c/y": 42}
    test = {"a/7": 17, "b/7": 37}
    images = {f"train/{name}.png": flat(value) for name, value in train.items()}
    return images | {f"test/{name}.png": flat(value) for name, value in test.items()}


def shades(x: Pixels) -> list[int]:
    return [int(value) for value in x[:, 0, 0]]


@pytest.mark.parametrize("test", ["test", "val"])
def test_the_kth_image_of_each_class_comes_in_turn(tmp_path: Path, test: str) -> None:
    write_images(tmp_path, small())
    (tmp_path / "test").rename(tmp_path / test)
    raw = GREY.read(tmp_path, 99)
    assert raw is not None
    assert shades(raw.x_train) == [11, 31, 41, 12, 42, 20]
    assert raw.y_train.tolist() == [0, 1, 2, 0, 2, 0]
    assert (shades(raw.x_test), raw.y_test.tolist()) == ([17, 37], [0, 1])
    assert (raw.classes, raw.class_names) == (3, ("a", "b", "c"))


@given(sizes=st.lists(st.integers(0, 4), min_size=2, max_size=5), limit=st.integers(1, 25))
@settings(max_examples=30)
def test_a_prefix_is_balanced_and_the_first_of_the_whole(sizes: list[int], limit: int) -> None:
    if not sum(sizes):
        sizes = [1, *sizes]
    images = {
        f"train/{label}/{i}.png": flat(16 * label + i)
        for label, size in enumerate(sizes)
        for i in range(size)
    }
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), images | {"val/0/0.png": flat(0)})
        for label in range(len(sizes)):
            (Path(folder) / "train" / str(label)).mkdir(exist_ok=True)
        whole, short = (GREY.read(Path(folder), count) for count in (99, limit))
    assert whole is not None
    assert short is not None
    np.testing.assert_array_equal(short.x_train, whole.x_train[:limit])
    assert sorted(shades(whole.x_train)) == sorted(int(image[0, 0]) for image in images.values())
    counts = np.bincount(short.y_train, minlength=len(sizes))
    # Only a class that is used up has fewer than another, but for the turn that is under way.
    open_ones = [count for count, size in zip(counts, sizes, strict=True) if count < size]
    assert all(count >= counts.max() - 1 for count in open_ones)


def test_val_wins_over_test(tmp_path: Path) -> None:
    write_images(tmp_path, small() | {"val/b/1.png": flat(99)})
    raw = GREY.read(tmp_path, 99)
    assert raw is not None
    assert shades(raw.x_test) == [99]


def test_tiny_imagenet_s_layout(tmp_path: Path) -> None:
    images = {
        f"train/{wnid}/images/{wnid}_{i}.JPEG": flat(10 * label + i)
        for label, wnid in enumerate(["n01", "n02"])
        for i in (0, 1, 10)
    }
    images |= {f"val/images/val_{i}.JPEG": flat(50 + i) for i in range(3)}
    write_images(tmp_path, images | {"test/images/test_0.JPEG": flat(0)})
    (tmp_path / "train/n01/n01_boxes.txt").write_text("n01_0.JPEG\t0\t0\t63\t63\n")
    order = [(1, "n02"), (0, "n01"), (2, "n02")]
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62\n" for i, wnid in order]
    (tmp_path / "val/val_annotations.txt").write_text("".join(lines))
    raw = GREY.read(tmp_path, 99)
    assert raw is not None
    assert shades(raw.x_train) == [0, 10, 1, 11, 10, 20]
    assert (shades(raw.x_test), raw.y_test.tolist()) == ([51, 50, 52], [1, 0, 1])
    short = GREY.read(tmp_path, 2)
    assert short is not None
    assert shades(short.x_test) == [51, 50]


def test_links_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write_images(tmp_path, small() | {"train/a/.hidden.png": flat(1), ".cache/a/1.png": flat(1)})
    (tmp_path / "train/a/notes.txt").write_text("hello")
    (tmp_path / "train/README.png").write_text("not in a class")
    (tmp_path / "train/a/folder.png").mkdir()
    (tmp_path / "train/b/link.png").symlink_to(tmp_path / "train/a/1.png")
    (tmp_path / "train/linked").symlink_to(tmp_path / "train/a")
    os.mkfifo(tmp_path / "train/a/pipe.png")
    raw = GREY.read(tmp_path, 99)
    assert raw is not None
    assert shades(raw.x_train) == [11, 31, 41, 12, 42, 20]
    assert raw.classes == 3


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3), (4, 4, 4)])
def test_every_image_becomes_colour(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_images(tmp_path, small() | {"train/a/1.png": flat(200, *shape)})
    raw = COLOUR.read(tmp_path, 1)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, np.full((1, 4, 4, 3), 200))


def test_the_centre_is_cut_out(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = pixels(1, 4, 4, 3)[0]
    write_images(tmp_path, small() | {"train/a/1.png": wide, "train/b/1.png": wide.swapaxes(0, 1)})
    raw = COLOUR.read(tmp_path, 2)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train[0], wide[:, 4:8])
    np.testing.assert_array_equal(raw.x_train[1], wide[:, 4:8].swapaxes(0, 1))


def test_scaling_takes_all_pixels_into_account(tmp_path: Path) -> None:
    """A checkerboard of single pixels becomes an even grey, not the black of every eighth pixel."""
    board = (np.indices((32, 32)).sum(axis=0) % 2 * 255).astype(np.uint8)
    write_images(tmp_path, small() | {"train/a/1.png": board})
    raw = COLOUR.read(tmp_path, 1)
    assert raw is not None
    assert np.abs(raw.x_train.astype(float) - 127.5).max() < 8


def test_a_picture_of_one_row_is_not_scaled_to_a_giant(tmp_path: Path) -> None:
    write_images(tmp_path, small() | {"train/a/1.png": flat(7, 1, 60_000)})
    raw = COLOUR.read(tmp_path, 1)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, np.full((1, 4, 4, 3), 7))


def test_numbers_in_names_are_sorted_by_value() -> None:
    names = ["n2", "n10", "n1", "m3", "10", "9", "n", "n01"]
    assert sorted(names, key=natural) == ["9", "10", "m3", "n", "n01", "n1", "n2", "n10"]


def test_no_folder_at_all_is_no_error(tmp_path: Path) -> None:
    assert GREY.read(tmp_path, 1) is None


def png_claiming(width: int, height: int) -> bytes:
    """A small file that claims to unpack to any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def sixteen_bits(folder: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(folder / "train/a/1.png")


def annotate(line: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "test").rename(folder / "val")
        (folder / "val/images").mkdir()
        (folder / "val/a/7.png").rename(folder / "val/images/7.png")
        (folder / "val/val_annotations.txt").write_text(line)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("train/a/1.png", b""), "train/a/1.png: cannot be read: "),
        (put("train/a/1.png", b"GIF89a"), "train/a/1.png: cannot be read: "),
        (
            put("train/a/1.png", png_claiming(10_000, 8000)),
            "train/a/1.png: has 10000 x 8000 pixels: expected at most 67108864 pixels",
        ),
        (
            put("train/a/1.png", png_claiming(100_000, 1000)),
            "train/a/1.png: has 100000 x 1000 pixels: expected at most 67108864 pixels",
        ),
        (
            put("train/a/1.png", png_claiming(2**30, 2**30)),
            "train/a/1.png: expected at most 67108864 pixels",
        ),
        (
            put("train/a/1.png", png_claiming(100, 100)),
            "train/a/1.png: cannot be read: ",
        ),
        (sixteen_bits, "train/a/1.png: has colour mode I;16: expected one of 1, L, LA, P"),
        (
            lambda folder: (folder / "test").rename(folder / "later"),
            ": val and test missing: expected one of them beside train",
        ),
        (
            lambda folder: (folder / "test/a").rename(folder / "test/d"),
            "test/d/7.png: class 'd': expected one of those in train",
        ),
        (
            lambda folder: [path.unlink() for path in (folder / "test").rglob("*.png")],
            "test: holds no images: expected train/<class>/ and val/<class>/ or test/<class>/",
        ),
        (
            lambda folder: [(folder / "train" / c).rename(folder / c) for c in "bc"],
            "train: holds 1 class folders: expected at least 2",
        ),
        (annotate("7.png\td\n"), "val/images/7.png: class 'd': expected one of those in train"),
        (annotate("8.png\ta\n"), "val/images/8.png: no such file: val_annotations.txt names it"),
        (annotate("7.png\n"), "val/val_annotations.txt: line 1 is '7.png': expected the name of"),
        (
            annotate("../../train/a/1.png\ta\n"),
            r"val/val_annotations.txt: line 1 is '../../train/a/1.png\ta': expected the name of an",
        ),
        (annotate(""), "val: holds no images: expected train"),
    ],
)
def test_refusals(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    write_images(tmp_path, small())
    change(tmp_path)
    start = f"{tmp_path}{message}" if message.startswith(":") else f"{tmp_path}/{message}"
    with pytest.raises(InputError, match="^" + re.escape(start)) as caught:
        COLOUR.read(tmp_path, 99)
    assert "\n" not in str(caught.value)


def test_an_image_of_another_size_is_refused_where_nothing_is_scaled(tmp_path: Path) -> None:
    write_images(tmp_path, small() | {"train/b/1.png": flat(1, 4, 5)})
    message = f"{tmp_path}/train/b/1.png: has 5 x 4 pixels: expected 4 x 4"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        GREY.read(tmp_path, 99)


@given(data=st.data())
@settings(max_examples=100)
@pytest.mark.slow
def test_a_damaged_image_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(["PNG", "JPEG", "BMP"]))
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), small())
        path = Path(folder) / "train/a/1.png"
        Image.fromarray(pixels(1, 9, 9, 3)[0]).save(path, format=ending)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, 2 * len(content)))])
        try:
            raw = COLOUR.read(Path(folder), 1)
        except InputError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert raw is not None
            assert raw.x_train.shape == (1, 4, 4, 3)
