from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO, TextIOWrapper

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from gradpeel.reporting.bars import MOST_LABELS, MOST_ROWS, WIDTH, LabelLine, round_bars

Printed = Callable[[RenderableType], str]


def counts_in(text: str) -> list[int]:
    return [int(line.split()[-1]) for line in text.splitlines() if line.strip()]


def render(renderable: RenderableType, encoding: str = "utf-8") -> str:
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding=encoding)
    Console(file=stream, width=80).print(renderable)
    stream.flush()
    return raw.getvalue().decode(encoding)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=200))
def test_no_sample_is_lost_however_many_rounds(counts: list[int]) -> None:
    shown = counts_in(render(round_bars(counts)))
    assert sum(shown) == sum(counts)
    assert len(shown) <= MOST_ROWS


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=400))
def test_labels_take_one_line_however_many_classes(counts: list[int]) -> None:
    text = render(LabelLine(counts), encoding="ascii")
    shown = {int(a): int(b.replace(",", "")) for a, b in re.findall(r"(\d+): ([\d,]+)", text)}
    assert shown.items() <= dict(enumerate(counts)).items()
    assert len(shown) <= MOST_LABELS
    rest = re.search(r"and (\d+) other", text)
    assert len(shown) + (int(rest[1]) if rest else 0) == sum(count > 0 for count in counts)
    assert text.count("\n") == 1


def test_bars_are_as_long_as_their_counts(printed: Printed) -> None:
    lines = printed(round_bars([16, 8, 0])).splitlines()
    assert [line.count("█") for line in lines] == [WIDTH, WIDTH // 2, 0]
    assert [line.split()[:2] for line in lines] == [["round", "1"], ["round", "2"], ["round", "3"]]


def test_one_of_a_thousand_is_still_seen(printed: Printed) -> None:
    assert re.search(r"round 2\s+▎\s+1\s", printed(round_bars([1000, 1])).replace("▏", "▎"))


def test_rounds_are_taken_together(printed: Printed) -> None:
    text = printed(round_bars([1] * 17))
    assert "rounds 1-2 " in text
    assert "round 17 " in text


def test_frequent_labels_are_named(printed: Printed) -> None:
    text = printed(LabelLine([1] * 20 + [7]))
    assert text.split("\n")[0].rstrip().endswith("20 █7  and 11 other labels")
    assert "0 ▂1  1 ▂1" in text


def test_ascii_terminals_get_ascii() -> None:
    assert "#" * WIDTH in render(round_bars([3, 1]), encoding="ascii")
