"""Rows that are sums of others, which several local steps can make look like rows."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

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
