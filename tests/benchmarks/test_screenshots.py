from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.browsing import find_chromium


def _take(what: str, out: Path) -> None:
    if not os.environ.get("GRADPEEL_REQUIRE_CHROMIUM"):
        pytest.importorskip("playwright", reason="no browser: playwright is not installed")
        if find_chromium() is None:
            pytest.skip("no browser is installed")
    # In a process of its own: one holds one Playwright, and other tests have it.
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.screenshots", "--only", what, "--out", out],
        cwd=root,
        env=os.environ
        | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        check=True,
        capture_output=True,
    )


@pytest.mark.slow
def test_a_picture_of_the_terminal_is_taken(tmp_path: Path) -> None:
    _take("terminal", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["terminal.png"]
    with Image.open(tmp_path / "terminal.png") as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(4096) or []) > 8


@pytest.mark.slow
def test_pictures_of_the_page_are_taken(tmp_path: Path) -> None:
    _take("digits", tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "report_digits_cascade_dark.png",
        "report_digits_cascade_light.png",
        "report_digits_dark.png",
        "report_digits_light.png",
    ]
    corners = {}
    for name in names:
        with Image.open(tmp_path / name) as picture:
            corners[name] = picture.convert("RGB").getpixel((2, 2))
            assert picture.width == 1280
    assert corners["report_digits_light.png"] == (255, 255, 255)
    assert corners["report_digits_dark.png"] != (255, 255, 255)
