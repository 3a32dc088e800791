from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from gradpeel.reporting.terminal_picture import shows_pictures, terminal_picture


def test_each_character_shows_two_pixels_in_their_colours() -> None:
    image = np.zeros((4, 4, 3))
    image[:2, :2] = [1.0, 0.0, 0.5]  # the upper left quarter
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="truecolor", width=20)
    console.print(terminal_picture(image, width=2))
    red, black = "255;0;128", "0;0;0"
    assert stream.getvalue() == (
        f"\x1b[38;2;{red};48;2;{black}m▀\x1b[0m\x1b[38;2;{black};48;2;{black}m▀\x1b[0m\n"
    )


@pytest.mark.parametrize(
    ("shape", "width", "rows"), [((416, 640), 64, 21), ((8, 8), 20, 10), ((1, 90), 9, 1)]
)
def test_the_shape_is_kept(shape: tuple[int, int], width: int, rows: int) -> None:
    lines = terminal_picture(np.full((*shape, 3), 0.5), width).plain.splitlines()
    assert [len(line) for line in lines] == [width] * rows


@pytest.mark.parametrize(
    ("settings", "shows"),
    [
        ({"force_terminal": True, "color_system": "truecolor"}, True),
        ({"force_terminal": True, "color_system": "256"}, True),
        ({"force_terminal": True, "color_system": "standard"}, False),
        ({"force_terminal": True, "color_system": None}, False),
        ({"force_terminal": False, "color_system": "truecolor"}, False),
    ],
)
def test_only_terminals_with_colours_get_pictures(settings: dict[str, object], shows: bool) -> None:
    console = Console(file=io.StringIO(), **settings)  # type: ignore[arg-type]
    assert shows_pictures(console) == shows


def test_ascii_terminals_get_none() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=stream, force_terminal=True, color_system="truecolor")
    assert not shows_pictures(console)
