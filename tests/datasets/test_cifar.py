from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradpeel.datasets.cifar import CIFAR10, CIFAR100
from gradpeel.errors import InputError
from original_files import cifar_bytes, edit, pixels, write_cifar10, write_cifar100


@given(each=st.integers(1, 3), limit=st.integers(1, 16), seed=st.integers(0, 2**16))
@settings(max_examples=20)
def test_cifar10_is_read_across_its_batches(each: int, limit: int, seed: int) -> None:
    x, y = pixels(5 * each, 32, 32, 3, seed=seed), np.arange(5 * each) % 10
    with tempfile.TemporaryDirectory() as folder:
        write_cifar10(Path(folder), x, y)
        raw = CIFAR10.read(Path(folder), limit)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, x[:limit])
    np.testing.assert_array_equal(raw.y_train, y[:limit])
    np.testing.assert_array_equal(raw.x_test, x[::-1][:limit])
    np.testing.assert_array_equal(raw.y_test, y[::-1][:limit])


@given(count=st.integers(1, 4), limit=st.integers(1, 5), seed=st.integers(0, 2**16))
@settings(max_examples=20)
def test_cifar100_takes_the_fine_label(count: int, limit: int, seed: int) -> None:
    x, y = pixels(count, 32, 32, 3, seed=seed), np.arange(count) * 31 % 100
    with tempfile.TemporaryDirectory() as folder:
        write_cifar100(Path(folder), x, y)
        raw = CIFAR100.read(Path(folder), limit)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, x[:limit])
    np.testing.assert_array_equal(raw.y_train, y[:limit])
    np.testing.assert_array_equal(raw.x_test, x[::-1][:limit])
    np.testing.assert_array_equal(raw.y_test, y[::-1][:limit])


def test_class_names_are_the_official_ones() -> None:
    assert (CIFAR10.class_names[0], CIFAR10.class_names[9]) == ("airplane", "truck")
    assert len(CIFAR100.class_names) == 100
    assert CIFAR100.class_names == tuple(sorted(CIFAR100.class_names))
    assert CIFAR100.class_names[19] == "cattle"


def test_batches_that_are_not_needed_are_not_opened(tmp_path: Path) -> None:
    write_cifar10(tmp_path, pixels(10, 32, 32, 3), np.arange(10))
    (tmp_path / "data_batch_2.bin").write_bytes(b"damaged")
    raw = CIFAR10.read(tmp_path, 2)
    assert raw is not None
    assert raw.y_train.tolist() == [0, 1]
    with pytest.raises(InputError, match="has 7 bytes"):
        CIFAR10.read(tmp_path, 3)


def test_no_file_at_all_is_no_error(tmp_path: Path) -> None:
    assert CIFAR10.read(tmp_path, 1) is None
    assert CIFAR100.read(tmp_path, 1) is None


@pytest.mark.parametrize("size", [0, 1, 3072, 3074])
def test_a_file_that_is_no_row_of_records_is_refused(tmp_path: Path, size: int) -> None:
    write_cifar10(tmp_path, pixels(5, 32, 32, 3), np.arange(5))
    path = tmp_path / "test_batch.bin"
    path.write_bytes(bytes(size))
    message = f"{path}: has {size} bytes: expected a multiple of 3073, the size of a record"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        CIFAR10.read(tmp_path, 1)


def test_a_label_outside_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, pixels(5, 32, 32, 3), np.arange(5))
    path = tmp_path / "test_batch.bin"
    path.write_bytes(cifar_bytes(pixels(3, 32, 32, 3), np.array([1, 2, 10])))
    message = f"{path}: label[2]=10: expected a label in 0..9"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        CIFAR10.read(tmp_path, 3)


@pytest.mark.parametrize(
    ("byte", "value", "rule"), [(0, 20, "20: expected a label in 0..19"), (1, 100, "100: expected")]
)
def test_both_label_bytes_are_checked(tmp_path: Path, byte: int, value: int, rule: str) -> None:
    write_cifar100(tmp_path, pixels(2, 32, 32, 3), np.arange(2))
    path = tmp_path / "train.bin"

    def change(content: bytearray) -> bytearray:
        content[byte] = value
        return content

    edit(path, change)
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: label[0]={rule}")):
        CIFAR100.read(tmp_path, 2)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path, pixels(5, 32, 32, 3), np.arange(5))
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(InputError, match=r": data_batch_3\.bin missing: expected data_batch_1"):
        CIFAR10.read(tmp_path, 1)


def test_the_pickled_version_is_refused_unread(tmp_path: Path) -> None:
    for name in ("data_batch_1", "train", "meta"):
        (tmp_path / name).write_bytes(b"cos\nsystem\n")
    for layout, archive in ((CIFAR10, "cifar-10-binary"), (CIFAR100, "cifar-100-binary")):
        rule = f"expected the binary version, {archive}.tar.gz (nothing is unpickled)"
        message = f"{tmp_path}: holds the pickled python version: {rule}"
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            layout.read(tmp_path, 1)
