from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.browsing import find_chromium


@pytest.mark.slow
def test_pictures_of_terminal_and_page_are_taken(tmp_path: Path) -> None:
    if not os.environ.get("GRADPEEL_REQUIRE_CHROMIUM"):
        pytest.importorskip("playwright", reason="no browser: playwright is not installed")
        if find_chromium() is None:
            pytest.skip("no browser is installed")
    # In a process of its own: one holds one Playwright, and other tests have it.
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.screenshots", "--out", str(tmp_path)]
    subprocess.run(
        [*command, "--only", "terminal", "digits"],
        cwd=root,
        env=os.environ
        | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        check=True,
        capture_output=True,
    )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "report_digits_cascade_dark.png",
        "report_digits_cascade_light.png",
        "report_digits_dark.png",
        "report_digits_light.png",
        "terminal.png",
    ]
    with Image.open(tmp_path / "terminal.png") as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(4096) or []) > 8
    corners = {}
    for name in names[:-1]:
        with Image.open(tmp_path / name) as picture:
            corners[name] = picture.convert("RGB").getpixel((2, 2))
            assert picture.width == 1280
    assert corners["report_digits_light.png"] == (255, 255, 255)
    assert corners["report_digits_dark.png"] != (255, 255, 255)
