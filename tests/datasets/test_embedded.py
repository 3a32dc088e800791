from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_sample_images

from gradpeel.datasets import EMBEDDED, Dataset, assemble, load_embedded
from gradpeel.errors import InputError

ONE_WAY = "expected minmax, because pixels are always scaled to [0, 1]"


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return load_embedded("photos")


def test_names() -> None:
    assert EMBEDDED == ("digits", "breast_cancer", "photos")


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_set_is_in_the_unit_interval_without_duplicates(name: str) -> None:
    data = load_embedded(name)
    assert data.name == name
    assert data.data_range == (0.0, 1.0)
    assert (data.x_train.min(), data.x_train.max()) == (0, 1)
    rows = np.concatenate([data.x_train, data.x_test]).reshape(-1, data.features)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert data.class_names is not None
    assert set(data.y_train.tolist()) == set(range(data.classes))
    assert set(data.y_test.tolist()) == set(range(data.classes))


def test_digits_keep_their_order() -> None:
    data, source = load_embedded("digits"), load_digits()
    np.testing.assert_array_equal(np.concatenate([data.x_train, data.x_test]) * 16, source.images)
    np.testing.assert_array_equal(np.concatenate([data.y_train, data.y_test]), source.target)
    assert (len(data.x_train), len(data.x_test)) == (1200, 597)
    assert data.is_image


def test_breast_cancer_holds_every_patient_with_the_right_label() -> None:
    data, source = load_embedded("breast_cancer", "raw"), load_breast_cancer()
    assert (len(data.x_train), len(data.x_test), data.features) == (400, 169, 30)
    rows = np.column_stack(
        [np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])]
    )
    original = np.column_stack([source.data, source.target])
    assert {tuple(row) for row in rows.tolist()} == {tuple(row) for row in original.tolist()}
    assert data.feature_names is not None
    assert data.feature_names[:2] == ("mean radius", "mean texture")
    assert data.class_names == ("malignant", "benign")


def test_every_batch_of_breast_cancer_mixes_the_classes() -> None:
    y = load_embedded("breast_cancer").y_train
    benign = np.cumsum(y == 1)
    expected = 357 / 569 * np.arange(1, len(y) + 1)
    assert np.abs(benign - expected).max() <= 1


def test_breast_cancer_obeys_the_scaling() -> None:
    data = load_embedded("breast_cancer", "standard")
    assert data.data_range is None
    np.testing.assert_allclose(data.x_train.std(axis=0), 1)


def test_flower_is_the_client_and_china_the_server(photos: Dataset) -> None:
    china, flower = load_sample_images().images
    everywhere = np.ones(260, dtype=bool)
    np.testing.assert_allclose(assemble(photos.x_train, everywhere) * 255, flower[:416])
    np.testing.assert_allclose(assemble(photos.x_test, everywhere) * 255, china[:416])
    assert photos.sample_shape == (32, 32, 3)


def test_photo_labels_are_tenths_by_brightness(photos: Dataset) -> None:
    for tiles, labels in ((photos.x_train, photos.y_train), (photos.x_test, photos.y_test)):
        brightness = tiles.mean(axis=(1, 2, 3))
        assert np.bincount(labels).tolist() == [26] * 10
        for label in range(9):
            darker, brighter = brightness[labels == label], brightness[labels == label + 1]
            assert darker.max() <= brighter.min()


@given(present=st.lists(st.booleans(), max_size=260))
@settings(deadline=None, max_examples=20)
def test_assembling_shows_the_present_tiles_and_grey_elsewhere(present: list[bool]) -> None:
    tiles = np.arange(1.0, len(present) + 1)[:, None, None, None] * np.ones((32, 32, 3))
    mask = np.array(present, dtype=bool)
    tiles[~mask] = np.nan
    picture = assemble(tiles, mask)
    for place in range(260):
        row, column = 32 * (place // 20), 32 * (place % 20)
        shown = place < len(present) and present[place]
        patch = picture[row : row + 32, column : column + 32]
        assert (patch == (place + 1 if shown else 0.5)).all()


@pytest.mark.parametrize(
    ("tiles", "present", "message"),
    [
        (
            np.zeros((261, 32, 32, 3)),
            np.ones(261, bool),
            "tiles has shape (261, 32, 32, 3): expected at most 260 of shape (32, 32, 3)",
        ),
        (
            np.zeros((9, 3, 32, 32)),
            np.ones(9, bool),
            "tiles has shape (9, 3, 32, 32): expected at most 260 of shape (32, 32, 3)",
        ),
        (
            np.zeros((9, 32, 32, 3)),
            np.ones(8, bool),
            "present has shape (8,) and dtype bool: expected (9,) and bool",
        ),
        (
            np.zeros((9, 32, 32, 3)),
            np.arange(9),
            "present has shape (9,) and dtype int64: expected (9,) and bool",
        ),
    ],
)
def test_assemble_refusals(tiles: NDArray[np.float64], present: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        assemble(tiles, present)


@pytest.mark.parametrize(
    ("name", "scaling", "message"),
    [
        ("iris", "minmax", "data='iris': expected one of digits, breast_cancer, photos"),
        ("breast_cancer", "log", "scaling='log': expected one of minmax, standard, raw"),
        (
            "digits",
            "standard",
            f"scaling='standard': digits holds pixels: {ONE_WAY}",
        ),
        (
            "photos",
            "raw",
            f"scaling='raw': photos holds pixels: {ONE_WAY}",
        ),
    ],
)
def test_refusals(name: str, scaling: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_embedded(name, scaling)


def test_photos_without_pillow_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = "^data='photos': expected Pillow, which reads JPEG, installed$"
    with pytest.raises(InputError, match=message):
        load_embedded("photos")
