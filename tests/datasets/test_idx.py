from __future__ import annotations

import gzip
import re
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from gradpeel.datasets.class_names import DIGITS, EMNIST_CLASSES
from gradpeel.datasets.idx import EMNIST_FILES, MNIST_FILES, IdxFormat
from gradpeel.errors import InputError
from original_files import edit, idx_bytes, pixels, write_idx

FORMAT = IdxFormat(MNIST_FILES, (4, 3), DIGITS)
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@given(
    x=hnp.arrays(np.uint8, st.tuples(st.integers(1, 5), st.just(4), st.just(3))),
    limit=st.integers(1, 7),
    gz=st.booleans(),
    data=st.data(),
)
@settings(max_examples=50)
def test_what_was_written_is_read(
    x: NDArray[np.uint8], limit: int, gz: bool, data: st.DataObject
) -> None:
    y = data.draw(hnp.arrays(np.uint8, len(x), elements=st.integers(0, 9)))
    with tempfile.TemporaryDirectory() as folder:
        write_idx(Path(folder), x, y, gz=gz)
        raw = FORMAT.read(Path(folder), limit)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, x[:limit])
    np.testing.assert_array_equal(raw.y_train, y[:limit])
    np.testing.assert_array_equal(raw.x_test, x[::-1][:limit])
    np.testing.assert_array_equal(raw.y_test, y[::-1][:limit])
    assert (raw.classes, raw.class_names) == (10, DIGITS)


def test_emnist_is_turned_upright(tmp_path: Path) -> None:
    upright = pixels(3, 28, 28)
    flipped, y = upright.transpose(0, 2, 1), np.array([0, 10, 61])
    write_idx(tmp_path, flipped, y, prefix="emnist-byclass-", test="test", gz=True)
    raw = IdxFormat(EMNIST_FILES, (28, 28), EMNIST_CLASSES, transposed=True).read(tmp_path, 9)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, upright)
    assert [EMNIST_CLASSES[label] for label in raw.y_train] == ["0", "A", "z"]


def test_a_plain_file_wins_over_a_packed_one(tmp_path: Path) -> None:
    write_idx(tmp_path, pixels(2, 4, 3, seed=1), np.array([1, 1]), gz=True)
    write_idx(tmp_path, pixels(2, 4, 3), np.array([2, 2]))
    raw = FORMAT.read(tmp_path, 2)
    assert raw is not None
    assert raw.y_train.tolist() == [2, 2]


def test_no_file_at_all_is_no_error(tmp_path: Path) -> None:
    assert FORMAT.read(tmp_path, 1) is None
    assert FORMAT.read(tmp_path / "nowhere", 1) is None


def header(magic: int, *dims: int) -> bytes:
    return struct.pack(f">{1 + len(dims)}I", magic, *dims)


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, b"", "ends after 0 of 16 bytes: is cut off"),
        (IMAGES, idx_bytes(pixels(3, 4, 3))[:9], "ends after 9 of 16 bytes: is cut off"),
        (IMAGES, header(2049, 3, 4, 3) + bytes(36), "begins with 2049: expected 2051, as an idx"),
        (IMAGES, header(2051, 3, 3, 4) + bytes(36), "holds images of (3, 4): expected (4, 3)"),
        (IMAGES, header(2051, 0, 4, 3), "claims 0 entries: expected at least 1"),
        (LABELS, header(2051, 3) + bytes(3), "begins with 2051: expected 2049"),
        (LABELS, header(2049, 2) + bytes(2), f"claims 2 labels: {IMAGES} has 3 images"),
        (LABELS, header(2049, 3) + b"\0\x0a\0", "label[1]=10: expected a label in 0..9"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: bytes, message: str, gz: bool) -> None:
    path = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3), gz=gz)[name]
    path.write_bytes(gzip.compress(content) if gz else content)
    message = message.replace(IMAGES, IMAGES + ".gz" if gz else IMAGES)
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {message}")):
        FORMAT.read(tmp_path, 9)


@pytest.mark.parametrize("limit", [1, 9])
@pytest.mark.parametrize("size", [10, 35, 37])
def test_a_plain_file_of_another_size_is_refused_unread(
    tmp_path: Path, size: int, limit: int
) -> None:
    path = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3))[IMAGES]
    path.write_bytes(header(2051, 3, 4, 3) + bytes(size))
    message = f"{path}: claims 3 entries of 12 bytes, holds {size} bytes"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        FORMAT.read(tmp_path, limit)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(header(2051, 3, 4, 3) + bytes(35)), "ends after 35 of 36 bytes: is cut off"),
        (gzip.compress(header(2051, 3, 4, 3) + bytes(37)), "goes on after the 3 entries it claims"),
        (gzip.compress(idx_bytes(pixels(3, 4, 3)))[:-12], "cannot be read: "),
        (idx_bytes(pixels(3, 4, 3)), "cannot be read: "),
    ],
    ids=["short", "long", "cut off", "not packed"],
)
def test_a_packed_file_that_is_damaged(tmp_path: Path, content: bytes, message: str) -> None:
    path = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3), gz=True)[IMAGES]
    path.write_bytes(content)
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {message}")):
        FORMAT.read(tmp_path, 9)


def test_a_flipped_bit_fails_the_checksum(tmp_path: Path) -> None:
    path = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3), gz=True)[IMAGES]

    def flip(content: bytearray) -> bytearray:
        content[-8] ^= 1
        return content

    edit(path, flip)
    with pytest.raises(InputError, match="cannot be read: "):
        FORMAT.read(tmp_path, 9)


def claim_everything(count: int) -> bytes:
    return header(2051, count, 4, 3)


def test_a_packed_file_is_read_as_far_as_needed_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb: 64 MiB of zeros in 64 kB, of which two images are wanted."""
    paths = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3), gz=True)
    count = 2**26 // 12
    paths[IMAGES].write_bytes(gzip.compress(claim_everything(count) + bytes(count * 12), 1))
    paths[LABELS].write_bytes(gzip.compress(header(2049, count) + bytes(count), 1))
    unpacked = 0
    read = gzip.GzipFile.read

    def counting(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        content = read(self, size)
        unpacked += len(content)
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", counting)
    raw = FORMAT.read(tmp_path, 2)
    assert raw is not None
    assert raw.x_train.shape == (2, 4, 3)
    assert unpacked < 1000


@pytest.mark.parametrize("gz", [False, True])
def test_a_claim_of_terabytes_allocates_nothing(tmp_path: Path, gz: bool) -> None:
    paths = write_idx(tmp_path, pixels(3, 4, 3), np.arange(3), gz=gz)
    pack: Callable[[bytes], bytes] = gzip.compress if gz else bytes
    paths[IMAGES].write_bytes(pack(claim_everything(2**32 - 1)))
    message = "ends after 0 of 51539607540 bytes" if gz else "claims 4294967295 entries of 12 bytes"
    with pytest.raises(InputError, match=message):
        FORMAT.read(tmp_path, 2**40)


def test_a_missing_companion_is_named(tmp_path: Path) -> None:
    write_idx(tmp_path, pixels(3, 4, 3), np.arange(3))[LABELS].unlink()
    message = f"{tmp_path}: {LABELS} missing: expected {IMAGES}, {LABELS}, t10k-images"
    with pytest.raises(InputError, match="^" + re.escape(message)):
        FORMAT.read(tmp_path, 9)


@given(data=st.data())
@settings(max_examples=200)
@pytest.mark.slow
def test_a_damaged_file_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    gz = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        path = write_idx(Path(folder), pixels(3, 4, 3), np.arange(3), gz=gz)[IMAGES]
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            raw = FORMAT.read(Path(folder), 9)
        except InputError as error:
            assert str(path) in str(error) or "claims" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert raw is not None
            assert raw.x_train.shape == (3, 4, 3)
