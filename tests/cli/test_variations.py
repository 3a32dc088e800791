from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel import Audit
from gradpeel.cli import variations
from gradpeel.cli.variations import QUICK, Variation, compare

CHANGED = variations.variations("float64", 0.0, 8, most=100)


@given(
    dtype=st.sampled_from(["float64", "float32", "bfloat16", "float16"]),
    noise=st.sampled_from([0.0, 1e-6, 0.3]),
    batch_size=st.integers(1, 50),
    most=st.integers(1, 60),
)
def test_each_changes_one_thing(dtype: str, noise: float, batch_size: int, most: int) -> None:
    found = variations.variations(dtype, noise, batch_size, most=most)
    assert len({one.name for one in found}) == len(found) == 2 + (2 * batch_size <= most)
    for one in found:
        same = (one.dtype == dtype, one.noise == noise, one.batch_size == batch_size)
        assert sum(same) == 2
        assert one.noise >= noise
        assert one.batch_size <= max(most, batch_size)


def test_a_slow_audit_is_compared_only_if_asked() -> None:
    def run(one: Variation, go_on: Callable[[object], None]) -> Audit:
        raise AssertionError(one.name)

    assert compare(CHANGED, run, asked=None, took=QUICK) == {}
    assert compare(CHANGED, run, asked=False, took=0.0) == {}
    with pytest.raises(AssertionError, match="float32"):
        compare(CHANGED, run, asked=True, took=1e9)


def test_the_time_is_for_all_of_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, whole = 0.0, cast("Audit", object())
    monkeypatch.setattr(variations, "perf_counter", lambda: now)
    begun = []

    def run(one: Variation, go_on: Callable[[object], None]) -> Audit:
        nonlocal now
        begun.append(one.name)
        for _ in range(3):
            go_on(None)
            now += 3.0
        return whole

    found = compare(CHANGED, run, asked=None, took=0.1)
    assert found == {"float32": whole, "noise of 0.001": None, "batch of 16": None}
    assert begun == ["float32", "noise of 0.001"]
    assert compare(CHANGED, run, asked=True, took=0.1) == dict.fromkeys(found, whole)
