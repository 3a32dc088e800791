from __future__ import annotations

import re
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import loadmat, savemat

from gradpeel.datasets.mat import read_arrays
from gradpeel.datasets.svhn import SvhnFormat
from gradpeel.errors import InputError
from original_files import edit, pixels, write_svhn


@given(
    count=st.integers(1, 12),
    limit=st.integers(1, 14),
    compress=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=30)
def test_what_was_written_is_read(count: int, limit: int, compress: bool, seed: int) -> None:
    x, y = pixels(count, 32, 32, 3, seed=seed), np.arange(count) % 10
    with tempfile.TemporaryDirectory() as folder:
        write_svhn(Path(folder), x, y, compress=compress)
        raw = SvhnFormat().read(Path(folder), limit)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, x[:limit])
    np.testing.assert_array_equal(raw.y_train, y[:limit])
    np.testing.assert_array_equal(raw.x_test, x[::-1][:limit])
    np.testing.assert_array_equal(raw.y_test, y[::-1][:limit])


DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 5), (2, 3, 4)])
def test_any_array_is_read_as_scipy_reads_it(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], compress: bool
) -> None:
    path = tmp_path / "a.mat"
    a = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    other = {"text": "hello", "cell": np.array([[1], "a"], dtype=object), "z": a[:1] + 1}
    savemat(path, other | {"a": a}, do_compression=compress)
    slow = loadmat(path)["a"]
    for limit in (1, 3, 100):
        found = read_arrays(path, {"a": limit})["a"]
        assert found.shape == slow.shape == shape
        np.testing.assert_array_equal(found.numbers, slow.ravel("F")[:limit])


def test_labels_may_be_floats_as_matlab_has_them(tmp_path: Path) -> None:
    x = pixels(3, 32, 32, 3).transpose(1, 2, 3, 0)
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": x, "y": np.array([[10.0], [1.0], [9.0]])})
    raw = SvhnFormat().read(tmp_path, 9)
    assert raw is not None
    assert raw.y_train.tolist() == [0, 1, 9]


def test_no_file_at_all_is_no_error_but_one_alone_is(tmp_path: Path) -> None:
    assert SvhnFormat().read(tmp_path, 1) is None
    write_svhn(tmp_path, pixels(2, 32, 32, 3), np.arange(2))
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(InputError, match=r": test_32x32\.mat missing: expected train_32x32\.mat, "):
        SvhnFormat().read(tmp_path, 1)


def test_only_the_beginning_is_unpacked(tmp_path: Path) -> None:
    """Behind the first images the packed bytes are damaged, which nobody comes to see."""
    write_svhn(tmp_path, pixels(900, 32, 32, 3), np.arange(900) % 10)

    def damage(content: bytearray) -> bytearray:
        content[-100_000:-50_000] = bytes(50_000)
        return content

    edit(tmp_path / "train_32x32.mat", damage)
    raw = SvhnFormat().read(tmp_path, 5)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, pixels(900, 32, 32, 3)[:5])
    with pytest.raises(InputError, match=r"train_32x32\.mat: cannot be read: "):
        SvhnFormat().read(tmp_path, 900)


X = pixels(2, 32, 32, 3).transpose(1, 2, 3, 0)
Y = np.array([[1], [2]], np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, "y missing: expected arrays of these names"),
        ({"Z": X}, "X, y missing: expected arrays of these names"),
        ({"X": X.astype(float), "y": Y}, "X has shape (32, 32, 3, 2) of float64: expected (32, 32"),
        ({"X": X[..., 0], "y": Y}, "X has shape (32, 32, 3) of uint8: expected (32, 32, 3, images"),
        ({"X": X.T, "y": Y}, "X has shape (2, 3, 32, 32) of uint8: expected (32, 32, 3, images)"),
        ({"X": X, "y": Y[:1]}, "y has shape (1, 1): expected (2, 1) as X has"),
        ({"X": X, "y": np.hstack([Y, Y])}, "y has shape (2, 2): expected (2, 1) as X has"),
        ({"X": X, "y": Y - 1}, "label[0]=0: expected a label in 1..10"),
        ({"X": X, "y": Y + 9}, "label[1]=11: expected a label in 1..10"),
        ({"X": X, "y": Y + 0.5}, "label[0]=1.5: expected a label in 1..10"),
        ({"X": X, "y": Y * np.nan}, "label[0]=nan: expected a label in 1..10"),
        ({"X": X, "y": Y * 1j}, "y is no array of real numbers"),
        ({"X": "pixels", "y": Y}, "X is no array of real numbers"),
        ({"X": np.array([[X]], dtype=object), "y": Y}, "X is no array of real numbers"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_refusals(
    tmp_path: Path, arrays: dict[str, NDArray[Any]], message: str, compress: bool
) -> None:
    write_svhn(tmp_path, pixels(2, 32, 32, 3), np.arange(2))
    path = tmp_path / "train_32x32.mat"
    savemat(path, arrays, do_compression=compress)
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {message}")):
        SvhnFormat().read(tmp_path, 9)


def element(kind: int, content: bytes, claimed: int | None = None) -> bytes:
    tag = struct.pack("<II", kind, len(content) if claimed is None else claimed)
    return tag + content + bytes(-len(content) % 8)


def array(dims: tuple[int, ...], content: bytes, claimed: int | None = None) -> bytes:
    parts = element(6, bytes([9, 0, 0, 0, 0, 0, 0, 0]))
    parts += element(5, struct.pack(f"<{len(dims)}i", *dims)) + element(1, b"X")
    return element(14, parts + element(2, content, claimed))


HEADER = bytes(124) + b"\0\1IM"
MIB = 2**20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MATLAB 5 file (little-endian, before version 7.3)"),
        (b"hello", "not a MATLAB 5 file"),
        (bytes(124) + b"\1\0MI", "not a MATLAB 5 file"),
        (HEADER, "X, y missing"),
        (HEADER + b"\x0e\0\0\0", "ends after 4 of 8 bytes: is cut off"),
        (HEADER + element(14, b"", 100), "an element claims 100 bytes: the file ends after 0"),
        (HEADER + element(15, b"zipped"), "cannot be read: "),
        (HEADER + element(15, b""), "ends after 0 of 8 bytes: is cut off"),
        (HEADER + element(14, element(6, bytes(16))), "an element has type 6 and 16 bytes: expect"),
        (HEADER + element(14, element(5, bytes(8))), "an element has type 5 and 8 bytes: expect"),
        (
            HEADER + element(14, struct.pack("<HHI", 6, 5, 0)),
            "a small element claims 5 bytes: expected at most 4",
        ),
        (HEADER + array((2, 2), bytes(8)), "X claims shape (2, 2) of uint8, holds 8 bytes"),
        (HEADER + array((-2, -2), bytes(4)), "X claims shape (-2, -2) of uint8, holds 4 bytes"),
        (
            HEADER + array((2**30, 2**30, 2**30), bytes(8)),
            "X claims shape (1073741824, 1073741824, 1073741824) of uint8, holds 8 bytes",
        ),
        (
            HEADER + array((2**20, 2**10), bytes(8), 2**30),
            "X claims shape (1048576, 1024) of uint8, holds 1073741824 bytes",
        ),
        (
            HEADER + element(15, zlib.compress(array((8,), bytes(8))[:-3])),
            "ends after 5 of 8 bytes: is cut off",
        ),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    write_svhn(tmp_path, pixels(2, 32, 32, 3), np.arange(2))
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(content)
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {message}")) as caught:
        SvhnFormat().read(tmp_path, 9)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_of_a_bomb_only_what_is_wanted_is_unpacked(tmp_path: Path) -> None:
    """Half a gigabyte of zeros packed into half a megabyte."""
    packer = zlib.compressobj(1)
    count = 512 * MIB
    head = array((count // 2, 2), b"", count)
    # The matrix claims as much as it would hold.
    head = head[:4] + struct.pack("<I", len(head) - 8 + count) + head[8:]
    packed = packer.compress(head) + b"".join(packer.compress(bytes(MIB)) for _ in range(512))
    packed += packer.flush()
    path = tmp_path / "bomb.mat"
    path.write_bytes(HEADER + element(15, packed))
    found = read_arrays(path, {"X": 7})["X"]
    assert (found.shape, found.numbers.tolist()) == ((count // 2, 2), [0] * 7)


@given(data=st.data())
@settings(max_examples=200)
@pytest.mark.slow
def test_a_damaged_file_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compress = data.draw(st.booleans())
        write_svhn(Path(folder), pixels(1, 32, 32, 3), np.arange(1), compress=compress)
        path = Path(folder) / "train_32x32.mat"
        # Where the structure is: the front, and the labels at the end.
        places = st.one_of(st.integers(100, 260), st.integers(-80, -1))
        changes = data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1))
        length = data.draw(st.integers(0, 4000))
        edit(path, damaging(changes, length))
        try:
            raw = SvhnFormat().read(Path(folder), 9)
        except InputError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert raw is not None


def damaging(changes: list[tuple[int, int]], length: int) -> Callable[[bytearray], bytearray]:
    def change(content: bytearray) -> bytearray:
        for place, value in changes:
            content[place] = value
        return content[:length] if length < 3000 else content

    return change
