from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gradpeel.designs import RobustSoliton, ideal_soliton
from gradpeel.designs.degrees import check_soliton
from gradpeel.errors import InputError


@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [
        (1, [1.0]),
        (2, [1 / 2, 1 / 2]),
        (3, [1 / 3, 1 / 2, 1 / 6]),
        (5, [1 / 5, 1 / 2, 1 / 6, 1 / 12, 1 / 20]),
    ],
)
def test_ideal_soliton_by_hand(batch_size: int, expected: list[float]) -> None:
    np.testing.assert_allclose(ideal_soliton(batch_size), expected, rtol=1e-15)


def test_robust_soliton_by_hand() -> None:
    # B = 100, c = 0.1, delta = 0.5: R = 0.1 * ln(200) * 10 = 5.298317, B/R = 18.8739, floor 18
    # (rounding would give 19), tau(18) = 0.05298317 * ln(10.596635) = 0.125069,
    # beta = 1 + 0.05298317 * H(17) + tau(18) = 1 + 0.05298317 * 3.439553 + 0.125069 = 1.307307.
    probabilities = RobustSoliton(c=0.1, delta=0.5).probabilities(100)
    assert probabilities[0] == pytest.approx((0.01 + 0.05298317) / 1.307307, rel=1e-5)
    assert probabilities[1] == pytest.approx((0.5 + 0.05298317 / 2) / 1.307307, rel=1e-5)
    assert probabilities[16] == pytest.approx((1 / 272 + 0.05298317 / 17) / 1.307307, rel=1e-5)
    assert probabilities[17] == pytest.approx((1 / 306 + 0.125069) / 1.307307, rel=1e-5)
    assert probabilities[18] == pytest.approx((1 / 342) / 1.307307, rel=1e-5)
    assert probabilities[99] == pytest.approx((1 / 9900) / 1.307307, rel=1e-5)


def test_paper_parameters_put_the_spike_at_the_floor() -> None:
    # B = 64: R = 0.05 * ln(160) * 8 = 2.030069, B/R = 31.526 (rounding would give 32).
    # B = 512: R = 0.05 * ln(1280) * 22.627417 = 8.094437, B/R = 63.253.
    for batch_size, spike in ((64, 31), (512, 63)):
        extra = RobustSoliton().probabilities(batch_size) / ideal_soliton(batch_size)
        assert int(extra[1:].argmax()) + 2 == spike


def test_spike_beyond_the_batch_leaves_only_the_low_degree_part() -> None:
    # B = 3, defaults: R = 0.05 * ln(7.5) * sqrt(3) = 0.174495, below delta; floor(B/R) = 17 > 3.
    share = 0.05 * math.log(7.5) * math.sqrt(3) / 3
    mass = np.array([1 / 3 + share, 1 / 2 + share / 2, 1 / 6 + share / 3])
    np.testing.assert_allclose(RobustSoliton().probabilities(3), mass / mass.sum(), rtol=1e-14)


@pytest.mark.parametrize("c", [1e-15, 5e-324])
def test_a_spike_beyond_all_degrees_leaves_the_ideal_soliton(c: float) -> None:
    np.testing.assert_allclose(RobustSoliton(c).probabilities(100), ideal_soliton(100), rtol=1e-9)
    assert RobustSoliton(c, delta=0.99).probabilities(1).tolist() == [1.0]


def test_no_place_for_the_perturbation_leaves_the_ideal_soliton() -> None:
    soliton = RobustSoliton(c=3.0, delta=0.1)  # R = 3 * ln(40) * 2 = 22 > B = 4
    np.testing.assert_allclose(soliton.probabilities(4), ideal_soliton(4), rtol=1e-14)


def test_a_negative_spike_counts_as_none() -> None:
    # R = 0.985 < delta = 0.99 and floor(5 / 0.985) = 5: here alone ln(R/delta) < 0 would show.
    soliton = RobustSoliton(c=0.985 / (math.log(5 / 0.99) * math.sqrt(5)), delta=0.99)
    below = np.arange(1, 5)
    mass = ideal_soliton(5)
    mass[:4] += 0.985 / (below * 5)
    np.testing.assert_allclose(soliton.probabilities(5), mass / mass.sum(), rtol=1e-12)


@settings(deadline=None, max_examples=200)
@given(
    batch_size=st.integers(1, 400),
    c=st.floats(1e-3, 20),
    delta=st.floats(0.001, 0.999),
)
def test_probabilities_are_a_distribution(batch_size: int, c: float, delta: float) -> None:
    probabilities = RobustSoliton(c, delta).probabilities(batch_size)
    assert probabilities.shape == (batch_size,)
    assert (probabilities > 0).all()
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("batch_size", [2, 3, 64])
def test_draws_follow_the_distribution(batch_size: int) -> None:
    soliton = RobustSoliton()
    draws = soliton.draw(batch_size, size=20_000, rng=np.random.default_rng(1))
    counts = np.bincount(draws, minlength=batch_size + 1)
    assert counts.shape == (batch_size + 1,)
    assert counts[0] == 0
    # Every degree up to B = 64 is expected at least four times: no need to pool rare ones.
    assert chisquare(counts[1:], 20_000 * soliton.probabilities(batch_size)).pvalue > 1e-3


def test_a_batch_of_one_has_degree_one() -> None:
    assert RobustSoliton().draw(1, size=3, rng=np.random.default_rng(0)).tolist() == [1, 1, 1]


def test_draws_are_reproducible() -> None:
    first, second = (RobustSoliton().draw(64, 100, np.random.default_rng(7)) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ideal_soliton(0), "batch_size=0: expected a positive integer"),
        (lambda: RobustSoliton().probabilities(-1), "batch_size=-1: expected a positive integer"),
        (lambda: RobustSoliton(c=0.0), "c=0.0: expected a positive number"),
        (lambda: RobustSoliton(c=math.nan), "c=nan: expected a positive number"),
        (lambda: RobustSoliton(c=math.inf), "c=inf: expected a positive number"),
        (lambda: RobustSoliton(c=cast("float", "1")), "c='1': expected a positive number"),
        (
            lambda: RobustSoliton(delta=cast("float", None)),
            "delta=None: expected a number above 0 and below 1",
        ),
        (
            lambda: check_soliton((0.05, 0.4)),
            "soliton=(0.05, 0.4): expected a gradpeel.designs.RobustSoliton",
        ),
        (lambda: RobustSoliton(delta=0.0), "delta=0.0: expected a number above 0 and below 1"),
        (lambda: RobustSoliton(delta=1.0), "delta=1.0: expected a number above 0 and below 1"),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
