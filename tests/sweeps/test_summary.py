from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel.sweeps.summary import estimate, over_seeds
from sweep_rows import CELL, failed, measured


def test_the_interval_is_students() -> None:
    # mean 0.6, deviation 0.1, t of 2 degrees of freedom at 97.5 % is 4.302653
    found = estimate([0.5, 0.6, 0.7])
    assert found.mean == pytest.approx(0.6)
    assert found.high - found.mean == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_interval_holds_the_mean_and_stays_a_rate(rates: list[float]) -> None:
    found = estimate(rates)
    assert 0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1
    assert found.count == len(rates)


def test_one_seed_has_no_interval() -> None:
    assert str(estimate([0.25])) == "0.250"
    assert str(estimate([0.25, 0.25])) == "0.250 [0.250, 0.250]"


def test_seeds_of_a_cell_belong_together_and_failures_do_not_count() -> None:
    other = replace(CELL, batch_size=50)
    rows = [
        measured(CELL, 0, recovered=10, reachable=40),
        measured(other, 0, recovered=50),
        measured(CELL, 1, recovered=30, reachable=40),
        failed(CELL, 2),
    ]
    first, second = over_seeds(rows)
    assert (first.cell, first.ours.mean, first.bound.mean, first.ours.count) == (CELL, 0.2, 0.4, 2)
    assert (second.cell, second.ours.mean, second.ours.count) == (other, 1.0, 1)
