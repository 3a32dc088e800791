from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel.reporting.words import counted, listing, percent, printable, scientific


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_percent_says_100_for_all_and_only_for_all(some: int, all_of_them: int) -> None:
    share = min(some, all_of_them) / all_of_them
    text = percent(share)
    assert (text == "100 %") == (some >= all_of_them)
    assert (text == "0 %") == (some == 0)
    if text[0].isdigit():
        assert abs(share * 100 - float(text.removesuffix(" %"))) <= 0.05 + 1e-9


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1e-9, "< 0.1 %"),
        (22 / 128, "17.2 %"),
        (0.29, "29.0 %"),
        (0.6375, "63.8 %"),
        (0.1375, "13.8 %"),
        (51 / 80, "63.8 %"),
        (1 / 3, "33.3 %"),
        (1 - 1e-16, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


@given(st.text(max_size=80), st.integers(8, 60))
def test_names_become_one_printable_line_of_bounded_length(name: str, most: int) -> None:
    shown = printable(name, most=most)
    assert shown.isprintable()
    assert len(shown) <= most


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=48))
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert printable(name) == name


def test_long_names_keep_their_end() -> None:
    assert printable("a" * 90 + "mine.npz", most=11) == "...mine.npz"


def test_counted() -> None:
    assert [counted(n, "sample") for n in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert counted(24865, "sample") == "24,865 samples"


def test_listing() -> None:
    assert listing([]) == ""
    assert listing([4]) == "4"
    assert listing([4, 5]) == "4 and 5"
    assert listing([4, 5, 6]) == "4, 5 and 6"
    assert listing(list(range(100)), most=2) == "0, 1 and 98 more"


def test_scientific() -> None:
    assert [scientific(v) for v in (0.0, 1.0, 3.14e-15)] == ["0", "1.0e+00", "3.1e-15"]
