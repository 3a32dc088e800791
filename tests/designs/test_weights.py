from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from gradpeel.designs import Construction, draw_weights
from gradpeel.designs.weights import draw_torch_default
from gradpeel.errors import InputError


def test_independent_at_scale_one_is_the_gaussian() -> None:
    weights = draw_weights("independent", 100, 200, np.random.default_rng(0), sigma=0.5)
    assert kstest(weights.ravel(), norm(scale=0.5).cdf).pvalue > 1e-3
    honest = np.random.default_rng(0).normal(0, 0.5, size=(100, 200))
    assert np.array_equal(weights, honest)


def test_independent_scales_positive_entries_only() -> None:
    honest, trapped = (
        draw_weights("independent", 20, 30, np.random.default_rng(3), scale=scale)
        for scale in (1.0, 0.25)
    )
    np.testing.assert_array_equal(trapped[honest < 0], honest[honest < 0])
    np.testing.assert_array_equal(trapped[honest > 0], 0.25 * honest[honest > 0])


@settings(deadline=None, max_examples=60)
@given(
    neurons=st.integers(1, 6),
    features=st.integers(1, 21),
    scale=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_mirrored_rows(neurons: int, features: int, scale: float, seed: int) -> None:
    weights = draw_weights("mirrored", neurons, features, np.random.default_rng(seed), scale=scale)
    assert weights.shape == (neurons, features)
    for row in weights:
        twins = np.sort(row[row > 0])
        made = list(-scale * row[row < 0])
        assert len(twins) == features // 2
        for twin in twins:  # each positive entry uses up one negative entry of its own
            made.remove(twin)
        assert len(made) == features % 2


def test_mirrored_has_the_marginal_law_of_the_independent_one() -> None:
    weights = draw_weights("mirrored", 400, 50, np.random.default_rng(0), sigma=2.0)
    # One entry of each row, since those of a row depend on each other.
    assert kstest(weights[:, 0], norm(scale=2.0).cdf).pvalue > 1e-3
    assert abs(weights.sum(axis=1)).max() < 1e-12


def test_mirrored_places_are_shuffled_row_by_row() -> None:
    positive = draw_weights("mirrored", 2000, 8, np.random.default_rng(0)) > 0
    np.testing.assert_allclose(positive.mean(axis=0), 0.5, atol=0.05)
    assert len({tuple(row) for row in positive}) == 70  # all of C(8, 4) sign patterns occur


def test_torch_default_bounds() -> None:
    weights, biases = draw_torch_default(500, 16, np.random.default_rng(0))
    assert weights.shape == (500, 16)
    assert biases.shape == (500,)
    for values in (weights.ravel(), biases):
        assert kstest(values, "uniform", args=(-0.25, 0.5)).pvalue > 1e-3


@pytest.mark.parametrize("construction", ["independent", "mirrored"])
def test_seeds_reproduce(construction: Construction) -> None:
    one, same, other = (
        draw_weights(construction, 4, 9, np.random.default_rng(seed)) for seed in (5, 5, 6)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def _draw(construction: str, **settings: Any) -> Callable[[], object]:
    return lambda: draw_weights(
        cast("Construction", construction), 2, 2, np.random.default_rng(0), **settings
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_draw("twin"), "construction='twin': expected 'independent' or 'mirrored'"),
        (_draw("mirrored", scale=0.0), "scale=0.0: expected a number above 0 and at most 1"),
        (_draw("mirrored", scale=1.01), "scale=1.01: expected a number above 0 and at most 1"),
        (
            _draw("mirrored", scale=float("nan")),
            "scale=nan: expected a number above 0 and at most 1",
        ),
        (_draw("mirrored", scale=None), "scale=None: expected a number above 0 and at most 1"),
        (_draw("independent", sigma="1"), "sigma='1': expected a positive number"),
        (_draw("independent", sigma=10**400), f"sigma={10**400}: expected a positive number"),
        (_draw("independent", sigma=0.0), "sigma=0.0: expected a positive number"),
        (_draw("independent", sigma=float("inf")), "sigma=inf: expected a positive number"),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
