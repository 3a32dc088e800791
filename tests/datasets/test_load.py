from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradpeel.datasets import EMBEDDED, load
from gradpeel.errors import InputError

NAMES = (
    "digits, breast_cancer, photos, "
    "cifar10, cifar100, mnist, emnist, fashion_mnist, svhn, imagenet, harus"
)


def save(path: Path) -> Path:
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    with path.open("wb") as stream:
        np.savez(stream, x_train=x, y_train=y, x_test=x, y_test=y)
    return path


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_name_loads_the_embedded_set(name: str) -> None:
    assert load(name).name == name


@pytest.mark.parametrize("name", ["mine.npz", "mine", "digits"])
def test_a_path_loads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / name)
    for path in (Path(name), f"./{name}", str(tmp_path / name)):
        assert load(path).features == 3


def test_a_name_wins_over_a_file_and_a_bare_file_name_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "digits")
    save(tmp_path / "mine")
    assert load("digits").features == 64
    assert load("mine").features == 3


def test_the_scaling_reaches_both_kinds(tmp_path: Path) -> None:
    assert load(save(tmp_path / "mine.npz"), scaling="raw").x_train.max() == 11
    assert load("breast_cancer", scaling="raw").x_train.max() > 1000


def test_a_limit_takes_the_first_samples_of_each_split(tmp_path: Path) -> None:
    whole, short = (load(save(tmp_path / "mine.npz"), limit=limit) for limit in (None, 3))
    assert (len(whole.x_train), len(short.x_train), len(short.x_test)) == (4, 3, 3)
    np.testing.assert_array_equal(short.x_train, whole.x_train[:3])
    assert load("digits", limit=5).y_train.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["digits", "./mine.npz"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_dir": "."}, "data_dir='.': data={!r}: expected data to be one of cifar10, cifar"),
        ({"image_size": 64}, "image_size='64': data={!r}: expected data to be one of cifar10, "),
        ({"limit": 0}, "limit=0: expected a positive integer"),
    ],
)
def test_refused_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "mine.npz")
    with pytest.raises(InputError, match="^" + re.escape(message.format(name))):
        load(name, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "digitz",
            f"data='digitz': expected {NAMES} or the path of an .npz, .csv or .parquet file",
        ),
        ("fashion-mnist", "data='fashion-mnist': expected digits, breast_cancer, photos, cif"),
        ("a" * 5000, "data='aaaa"),
        ("a\0b", r"data='a\x00b': expected digits"),
        ("missing.npz", "missing.npz: no such file"),
        ("folder/missing", "folder/missing: no such file"),
        ("", "data='': expected digits"),
        (".", ".: is a directory: expected an .npz file"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="^" + re.escape(message)):
        load(name)
