from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradpeel.reporting.page.charts import (
    HEIGHT,
    WIDTH,
    bars,
    degree_bars,
    probability_bars,
    residual_curve,
    scatter,
)
from gradpeel.reporting.page.payload import Risk

DEGREES = st.lists(st.integers(0, 50), min_size=2, max_size=600).map(tuple)


@given(DEGREES)
def test_no_neuron_is_lost_in_a_bin(degrees: tuple[int, ...]) -> None:
    by_degree, by_share = degree_bars(degrees, ()), probability_bars(degrees)
    assert sum(bar.count for bar in by_degree) == sum(degrees)
    assert sum(bar.count for bar in by_share) == sum(degrees)
    assert {bar.target for bar in by_degree} == {None}
    assert len(by_share) == 20


@given(DEGREES)
def test_no_aim_is_lost_in_a_bin(degrees: tuple[int, ...]) -> None:
    target = [1 / (degree + 1) for degree in range(len(degrees) - 1)]
    shown = degree_bars(degrees, target)
    assert abs(sum(bar.target or 0.0 for bar in shown) - sum(target)) < 1e-9


@given(DEGREES)
def test_bars_stay_inside_the_chart(degrees: tuple[int, ...]) -> None:
    chart = bars(degree_bars(degrees, ()))
    for bar, left, width, top, _ in chart.places:
        assert 0 <= top <= HEIGHT
        assert 0 <= left <= left + width <= WIDTH + 0.1
        assert (top == HEIGHT) == (bar.count == 0) or bar.count
    assert all(0 <= y <= HEIGHT for y, _ in chart.ticks)
    assert 1 <= len(chart.ticks) <= 6


def test_edges_of_bins_do_not_fall_to_rounding() -> None:
    degrees = [0] * 21
    degrees[6] = 1  # 6 of 20 is 30 %, which in floating point is 0.3 or a little less
    (hit,) = [bar.name for bar in probability_bars(degrees) if bar.count]
    assert hit == "30–35 %"


@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=60))
def test_residuals_stay_inside_and_smaller_ones_below(residuals: list[float]) -> None:
    chart = residual_curve(residuals)
    assert chart is not None
    assert len(chart.marks) == len(residuals)
    for (x, y), value in zip(chart.marks, residuals, strict=True):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
        assert all(
            y >= lower
            for (_, lower), other in zip(chart.marks, residuals, strict=True)
            if other > value
        )
    assert chart.names[0][1] == "start"
    assert 2 <= len(chart.ticks) <= 6


def test_without_a_round_there_is_no_residual_to_draw() -> None:
    assert residual_curve([1.0]) is None


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(0, 30)),
        min_size=1,
        max_size=80,
    )
)
def test_dots_stay_inside_and_earlier_rounds_above(rows: list[tuple[float, int]]) -> None:
    unusual, rounds = zip(*rows, strict=True)
    chart = scatter(Risk(unusual, rounds, (1,), ()))
    assert len(chart.dots) == len(rows)
    for dot in chart.dots:
        assert 0 <= dot.x <= WIDTH
        assert 0 <= dot.y <= HEIGHT
        assert dot.is_recovered == (rounds[dot.sample] > 0)
    for one in chart.dots:
        for other in chart.dots:
            if (rounds[one.sample] or 99) < (rounds[other.sample] or 99):
                assert one.y < other.y
    assert all(0 <= y <= HEIGHT for y, _ in chart.lines)
    assert all(0 <= x <= WIDTH for x, _ in chart.ticks)
