from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradpeel.datasets import har
from gradpeel.datasets.class_names import HAR_CLASSES
from gradpeel.datasets.har import HarFormat
from gradpeel.errors import InputError
from original_files import write_har


def table(rows: int, seed: int = 0) -> NDArray[np.float64]:
    """Numbers of eight digits, which the text form keeps."""
    rng = np.random.default_rng(seed)
    return np.array([float(f"{value:.7e}") for value in rng.uniform(-1, 1, rows * 561)]).reshape(
        rows, 561
    )


@given(rows=st.integers(1, 4), seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_what_was_written_is_read(rows: int, seed: int) -> None:
    x, y = table(rows, seed), np.arange(rows) % 6
    with tempfile.TemporaryDirectory() as folder:
        write_har(Path(folder), x, y)
        raw = HarFormat().read(Path(folder), 99)
    assert raw is not None
    np.testing.assert_array_equal(raw.x_train, x)
    np.testing.assert_array_equal(raw.y_train, y)
    np.testing.assert_array_equal(raw.x_test, x[::-1])
    np.testing.assert_array_equal(raw.y_test, y[::-1])


def test_the_original_s_way_to_write_numbers_is_read(tmp_path: Path) -> None:
    write_har(tmp_path, table(1), np.array([4]))
    line = "  2.8858451e-001 -2.0294171e-002" + "  0.0000000e+000" * 559
    (tmp_path / "train/X_train.txt").write_text(f"{line}\r\n")
    raw = HarFormat().read(tmp_path, 1)
    assert raw is not None
    assert raw.x_train[0, :3].tolist() == [0.28858451, -0.020294171, 0]


def test_names_come_from_the_files(tmp_path: Path) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]))
    raw = HarFormat().read(tmp_path, 9)
    assert raw is not None
    assert raw.class_names == ("WALKING", "UP", "DOWN", "SITTING", "STANDING", "LAYING")
    assert raw.feature_names is not None
    assert raw.feature_names[560] == "feature-561()"


def test_names_may_be_missing(tmp_path: Path) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]), names=False)
    raw = HarFormat().read(tmp_path, 9)
    assert raw is not None
    assert (raw.class_names, raw.feature_names) == (HAR_CLASSES, None)


def test_no_file_at_all_is_no_error(tmp_path: Path) -> None:
    assert HarFormat().read(tmp_path, 1) is None


ROW = " ".join(["0.5"] * 561)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/X_train.txt", "", "is empty: expected 561 numbers on each line"),
        ("train/X_train.txt", f"{ROW}\n0.5 0.5\n", "line 2 has 2 numbers: expected 561"),
        ("train/X_train.txt", f"{ROW} 1\n{ROW}\n", "line 1 has 562 numbers: expected 561"),
        ("train/X_train.txt", "1 " * 40_000, "line 1 has 32768 numbers: expected 561"),
        ("train/X_train.txt", f"{ROW}\n{ROW.replace('0.5', 'x', 1)}", "line 2: "),
        (
            "train/X_train.txt",
            f"{ROW.replace('0.5', 'nan', 1)}\n{ROW}",
            "line 1: expected finite numbers",
        ),
        ("train/y_train.txt", "1\n", "has 1 labels: X_train.txt has 2 samples"),
        ("train/y_train.txt", "1\n0\n", "label[1]=0: expected a label in 1..6"),
        ("test/y_test.txt", "7\n1\n", "label[0]=7: expected a label in 1..6"),
        ("test/y_test.txt", "1\n-1\n", "label[1]='-1': expected a label in 1..6"),
        ("test/y_test.txt", "1\n\u0663\n", "label[1]='\u0663': expected a label in 1..6"),
        ("test/y_test.txt", "1\n" + "9" * 5000, "label[1]='99999999999999999999': expected a la"),
        ("features.txt", "1 a\n", "holds 1 names: expected 561"),
        ("features.txt", "1 a\n3 b\n", "line 2 is '3 b': expected 2 and a name"),
        ("activity_labels.txt", "1\n", "line 1 is '1': expected 1 and a name"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: str, message: str) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]))
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: {message}")) as caught:
        HarFormat().read(tmp_path, 9)
    assert "\n" not in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]))
    for name in ("train/y_train.txt", "train/X_train.txt"):
        path = tmp_path / name
        path.write_bytes(b"\xff\xfe\n" * 3)
        with pytest.raises(InputError, match="^" + re.escape(f"{path}: ")):
            HarFormat().read(tmp_path, 9)


def test_a_file_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]))
    path = tmp_path / "train/X_train.txt"
    monkeypatch.setattr(har, "MAX_BYTES", 1000)
    size = path.stat().st_size
    with pytest.raises(InputError, match=f": has {size} bytes: expected at most 1000$"):
        HarFormat().read(tmp_path, 9)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_har(tmp_path, table(2), np.array([0, 5]))
    (tmp_path / "test/y_test.txt").unlink()
    with pytest.raises(InputError, match=r": test/y_test\.txt missing: expected train/X_train"):
        HarFormat().read(tmp_path, 9)
