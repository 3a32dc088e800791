"""Rows that are sums of others, which several local steps can make look like rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import rounds
from benchmarks.row_suites import Cell
from gradpeel.decoder.rows.settling import _adds_up


@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 0.95), own=st.integers(3, 20))
def test_a_sum_of_two_rows_has_more_zeros_without_one_of_them(
    seed: int, share: float, own: int
) -> None:
    source = torch.Generator().manual_seed(seed)
    rows = torch.randn(4, 200, generator=source, dtype=torch.float64)
    # The first fires at 20 neurons, `own` of which the second is silent at.
    fires = torch.zeros(4, 200, dtype=torch.bool)
    fires[0, :20] = fires[1, own:100] = fires[2, 90:150] = fires[3, 140:] = True
    rows *= fires
    both = rows[1] + share * rows[0]
    assert _adds_up(both, rows[[0, 2, 3]])
    assert not any(_adds_up(rows[i], rows[[j for j in range(4) if j != i]]) for i in range(4))


@pytest.mark.slow
def test_a_sum_that_looks_like_the_longer_row_is_not_certified(data_dir: Path) -> None:
    cell = Cell(
        dataset="cifar10",
        scaling="unit",
        start="soliton-free",
        batch_size=64,
        setting="lr 0.01, 5 epochs of 16",
    )
    row = rounds.measure(cell, data_dir)
    assert (row.recovered, row.false) == (64, 0)
