from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from gradpeel.datasets import SCALINGS, Dataset, draw_batch, rescale
from gradpeel.errors import InputError


def make(**changes: Any) -> Dataset:
    """Six training and four test samples of five features, three classes."""
    fields: dict[str, Any] = {
        "name": "toy",
        "x_train": np.arange(30.0).reshape(6, 5),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": 100 + np.arange(20.0).reshape(4, 5),
        "y_test": np.array([2, 1, 0, 2]),
        "classes": 3,
    }
    return Dataset(**(fields | changes))


def with_value(value: float) -> NDArray[np.float64]:
    x = np.zeros((6, 5))
    x[4, 2] = value
    return x


def test_samples_become_float64_and_labels_int64() -> None:
    data = make(
        x_train=np.ones((6, 5), dtype=">f4", order="F"), y_train=np.zeros(6, dtype=np.uint8)
    )
    assert data.x_train.dtype == np.float64
    assert data.x_train.flags.c_contiguous
    assert data.y_train.dtype == np.int64


@pytest.mark.parametrize(
    ("sample_shape", "features", "is_image"),
    [
        ((30,), 30, False),
        ((8, 8), 64, True),
        ((4, 4, 1), 16, True),
        ((4, 4, 3), 48, True),
        ((3, 4, 4), 48, True),
        ((4, 4, 4), 64, False),
        ((2, 4, 4, 3), 96, False),
    ],
)
def test_shape_properties(sample_shape: tuple[int, ...], features: int, is_image: bool) -> None:
    data = make(x_train=np.zeros((6, *sample_shape)), x_test=np.zeros((4, *sample_shape)))
    assert (data.sample_shape, data.features, data.is_image) == (sample_shape, features, is_image)


def test_repr_tells_sizes_instead_of_numbers() -> None:
    assert repr(make()) == "Dataset('toy', train=6, test=4, sample_shape=(5,), classes=3)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "toy: classes=1: expected 2 to 65536 (without class names: the largest"),
        ({"classes": 70_000}, "toy: classes=70000: expected 2 to 65536"),
        (
            {"x_train": np.zeros((6, 5), complex)},
            "toy: x_train has dtype complex128: expected real",
        ),
        ({"x_test": np.full((4, 5), "a")}, "toy: x_test has dtype <U1: expected real numbers"),
        ({"x_train": np.zeros((6, 5), object)}, "toy: x_train has dtype object: expected real"),
        ({"x_train": np.zeros(6)}, "toy: x_train has shape (6,): expected (samples, features ...)"),
        ({"x_test": np.zeros((0, 5))}, "toy: x_test has 0 samples, y_test 4 labels"),
        ({"x_train": np.zeros((0, 5))}, "toy: x_train has shape (0, 5): expected (samples, featur"),
        ({"x_train": np.zeros((6, 0))}, "toy: x_train has shape (6, 0): expected (samples, "),
        ({"x_train": with_value(np.nan)}, "toy: x_train[4, 2]=nan: expected finite numbers"),
        ({"x_train": with_value(-np.inf)}, "toy: x_train[4, 2]=-inf: expected finite numbers"),
        ({"y_train": np.zeros(6)}, "toy: y_train has dtype float64: expected integer labels"),
        ({"y_test": np.ones(4, bool)}, "toy: y_test has dtype bool: expected integer labels"),
        ({"y_train": np.zeros((6, 1), int)}, "toy: y_train has shape (6, 1): expected (samples,)"),
        ({"y_train": np.zeros(5, int)}, "toy: x_train has 6 samples, y_train 5 labels"),
        ({"y_test": np.zeros(0, int)}, "toy: x_test has 4 samples, y_test 0 labels"),
        ({"y_test": np.array([0, 1, -1, 0])}, "toy: y_test[2]=-1: expected a label in 0..2"),
        ({"y_test": np.array([0, 3, 1, 0])}, "toy: y_test[1]=3: expected a label in 0..2"),
        (
            {"y_train": np.full(6, 2**63, np.uint64)},
            "toy: y_train[0]=9223372036854775808: expected a label in 0..2",
        ),
        (
            {"x_test": np.zeros((4, 6))},
            "toy: x_test has samples of shape (6,): expected (5,) as in x_train",
        ),
        ({"data_range": (1.0, 0.0)}, "toy: data_range=(1.0, 0.0): expected low < high"),
        ({"data_range": (0.0, np.nan)}, "toy: data_range=(0.0, nan): expected low < high"),
        (
            {"data_range": (0.0, 1.0)},
            "toy: x_train runs from 0.0 to 29.0: expected data_range=(0.0, 1.0)",
        ),
        ({"class_names": ("a", "b")}, "toy: class_names holds 2 names: expected 3"),
        ({"feature_names": ("a",)}, "toy: feature_names holds 1 names: expected 5"),
        (
            {"class_names": ("a", "b", "\x1b[2J")},
            r"toy: class_names[2]='\x1b[2J': expected printable text",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)):
        make(**changes)


def test_a_number_beyond_float64_is_refused() -> None:
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long double is float64 here")
    huge = np.full((6, 5), np.finfo(np.longdouble).max)
    with pytest.raises(InputError, match=r"x_train\[0, 0\]=inf: expected finite numbers"):
        make(x_train=huge)


def test_batch_is_the_first_of_each_split() -> None:
    data = make()
    batch = draw_batch(data, 3)
    assert torch.equal(batch.x, torch.tensor(data.x_train[:3]))
    assert batch.y.tolist() == [0, 1, 2]
    assert torch.equal(batch.auxiliary, torch.tensor(data.x_test[:3]))
    assert batch.indices.tolist() == [0, 1, 2]
    assert (batch.x.dtype, batch.y.dtype) == (torch.float64, torch.int64)


def test_auxiliary_batch_ends_with_the_test_split() -> None:
    batch = draw_batch(make(), 6)
    assert (len(batch.x), len(batch.auxiliary)) == (6, 4)


def test_batch_does_not_share_memory_with_the_data() -> None:
    data = make()
    draw_batch(data, 6).x.zero_()
    assert data.x_train[5, 4] == 29


@given(size=st.integers(1, 6), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_shuffled_batch_repeats_by_seed_and_never_repeats_a_sample(size: int, seed: int) -> None:
    data = make()
    batch, again = (
        draw_batch(data, size, shuffle=True, rng=np.random.default_rng(seed)) for _ in range(2)
    )
    assert torch.equal(batch.x, again.x)
    assert torch.equal(batch.auxiliary, again.auxiliary)
    assert len(set(batch.indices.tolist())) == size
    np.testing.assert_array_equal(batch.x.numpy(), data.x_train[batch.indices])
    np.testing.assert_array_equal(batch.y.numpy(), data.y_train[batch.indices])
    rows = {tuple(row) for row in batch.auxiliary.tolist()}
    assert len(rows) == min(size, 4)
    assert rows <= {tuple(row) for row in data.x_test.tolist()}


def test_shuffling_reaches_every_sample() -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_batch(make(), 2, shuffle=True, rng=rng).indices for _ in range(60)]
    assert set(np.concatenate(drawn).tolist()) == set(range(6))


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "batch_size=0: expected a positive integer"),
        (-3, "batch_size=-3: expected a positive integer"),
        (2.0, "batch_size=2.0: expected a positive integer"),
        ("2", "batch_size='2': expected a positive integer"),
        (True, "batch_size=True: expected a positive integer"),
        (None, "batch_size=None: expected a positive integer"),
        (7, "batch_size=7: toy has 6 training samples"),
    ],
)
def test_batch_size_refusals(size: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        draw_batch(make(), size)


def test_a_numpy_integer_is_a_batch_size() -> None:
    assert len(draw_batch(make(), np.int64(2)).x) == 2  # type: ignore[arg-type]


def test_shuffling_needs_a_generator() -> None:
    with pytest.raises(InputError, match=r"^rng=None: expected a numpy Generator to shuffle with$"):
        draw_batch(make(), 2, shuffle=True)


def tables() -> st.SearchStrategy[NDArray[np.float64]]:
    shapes = st.tuples(st.integers(2, 6), st.integers(1, 4))
    return hnp.arrays(np.float64, shapes, elements=st.floats(-1e100, 1e100))


def of_table(x: NDArray[np.float64]) -> Dataset:
    y = np.arange(len(x)) % 2
    return make(x_train=x, y_train=y, x_test=x[::-1], y_test=y, classes=2)


@given(x=tables())
@settings(deadline=None, max_examples=200)
def test_minmax_takes_each_feature_onto_the_unit_interval(x: NDArray[np.float64]) -> None:
    scaled = rescale(of_table(x))
    low, high = scaled.x_train.min(axis=0), scaled.x_train.max(axis=0)
    assert scaled.data_range == (0.0, 1.0)
    np.testing.assert_array_equal(low, 0)
    np.testing.assert_array_equal(high, np.where(x.min(axis=0) < x.max(axis=0), 1.0, 0.0))
    np.testing.assert_array_equal(scaled.x_test, scaled.x_train[::-1])


@given(x=hnp.arrays(np.float64, (5, 3), elements=st.integers(-50, 50)))
@settings(deadline=None, max_examples=100)
def test_standard_takes_each_feature_to_mean_zero_and_deviation_one(x: NDArray[np.float64]) -> None:
    scaled = rescale(of_table(x), "standard")
    varies = x.min(axis=0) < x.max(axis=0)
    assert scaled.data_range is None
    np.testing.assert_allclose(scaled.x_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.x_train.std(axis=0), varies.astype(float), atol=1e-12)
    np.testing.assert_array_equal(scaled.x_test, scaled.x_train[::-1])


def test_raw_leaves_the_numbers_alone() -> None:
    data = make()
    assert rescale(data, "raw") is data


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_the_test_split_is_scaled_by_the_training_split(scaling: str) -> None:
    x_train = np.array([[0.0], [4.0]])
    data = make(x_train=x_train, y_train=np.array([0, 1]), x_test=np.full((4, 1), 6.0))
    expected = {"minmax": 1.5, "standard": 2.0}[scaling]
    np.testing.assert_allclose(rescale(data, scaling).x_test, expected)


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_a_constant_feature_becomes_zero_in_both_splits(scaling: str) -> None:
    # The computed deviation of six times 0.1 is 1e-17, by which nothing may be divided.
    data = make(x_train=np.full((6, 5), 0.1))
    scaled = rescale(data, scaling)
    assert not scaled.x_train.any()
    assert not scaled.x_test.any()


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_a_feature_too_wide_for_float64_is_refused(scaling: str) -> None:
    x = np.array([[-1.7e308], [1.7e308]] * 3)
    data = make(x_train=x, x_test=x[:4])
    with pytest.raises(InputError, match=r"^toy: x_train runs from -1\.7e\+308 to 1\.7e\+308: "):
        rescale(data, scaling)


def test_a_test_value_too_far_out_for_float64_is_refused() -> None:
    data = make(x_train=np.arange(30.0).reshape(6, 5) * 1e-300, x_test=np.full((4, 5), 1e300))
    with pytest.raises(InputError, match=r"^toy: x_test\[0, 0\]=inf: expected finite numbers$"):
        rescale(data)


def test_unknown_scaling_is_refused() -> None:
    assert SCALINGS == ("minmax", "standard", "raw")
    message = "^scaling='zscore': expected one of minmax, standard, raw$"
    with pytest.raises(InputError, match=message):
        rescale(make(), "zscore")


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_scaled_features_go_back_to_their_units(scaling: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)) * [1e-3, 1.0, 1e4] + [5.0, 0.0, -7.0]
    x[:, 1] = 2.5  # says nothing about its own scale, and must come back nevertheless
    y = np.arange(20) % 2
    measured = Dataset("mine", x, y, x, y, classes=2)
    assert measured.units is rescale(measured, "raw").units is None
    scaled = rescale(measured, scaling)
    assert scaled.units is not None
    np.testing.assert_allclose(scaled.units.original(scaled.x_train), x, rtol=1e-12)
