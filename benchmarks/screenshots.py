"""Pictures of the report page and the terminal for README and documentation.

    python -m benchmarks.screenshots [--out docs/images] [--only digits]

Both are real: the pages are those that `gradpeel demo` writes, opened in a browser, and the
terminal shows what the command wrote to one. They show nothing but data that comes with gradpeel.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, FloatRect
from rich.console import Console
from rich.text import Text

from benchmarks.browsing import browser
from gradpeel.demo import run_demo
from gradpeel.files import write_files

Scheme = Literal["light", "dark"]

PAGES = ("photos", "digits")
"""Data sets of the demo whose pages are shown."""
WIDTH, HEIGHT = 1280, 800
TERMINAL = "terminal"
COMMAND = "gradpeel audit --data digits --batch-size 64"
LETTERS = 84
"""In a line of the terminal."""
COLOURS = 256
"""In a picture without a photograph: a third of the size for pages that are mostly plain."""

PLACE = """() => {
  const { top, height } = document.getElementById("cascade").getBoundingClientRect();
  return [top + scrollY, height];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.screenshots",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument(
        "--only", choices=sorted([*PAGES, TERMINAL]), nargs="+", default=[*PAGES, TERMINAL]
    )
    given = parser.parse_args()
    pictures: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        shown = [name for name in PAGES if name in given.only]
        if shown:
            run_demo(Path(folder), on_progress=print)
        for name in shown:
            for scheme in ("light", "dark"):
                pictures |= _taken(started, Path(folder) / name / "report.html", name, scheme)
        if TERMINAL in given.only:
            pictures[f"{TERMINAL}.png"] = _terminal(started)
    for path in write_files(given.out, pictures):
        path.chmod(0o644)  # of nobody's data
        print(f"{path}: {path.stat().st_size} bytes")


def _taken(started: Browser, file: Path, name: str, scheme: Scheme) -> dict[str, bytes]:
    """The first screen, and the cascade half-way."""
    page = started.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    first = page.screenshot()
    rounds = page.evaluate("gradpeel.page.cascade.steps.length")
    page.fill("#round", str(rounds // 2))
    page.wait_for_selector("#mosaic[data-drawn]:not([data-drawn='0'])")
    page.locator("#round").blur()
    # With the margins of the page: a picture that ends at its letters looks cut off.
    top, height = page.evaluate(PLACE)
    clip: FloatRect = {"x": 0, "y": top + 8, "width": WIDTH, "height": height + 16}
    cascade = page.screenshot(full_page=True, clip=clip)
    page.close()
    colours = None if name == "photos" else COLOURS
    return {
        f"report_{name}_{scheme}.png": _small(first, colours),
        f"report_{name}_cascade_{scheme}.png": _small(cascade, colours),
    }


def _terminal(started: Browser) -> bytes:
    """What `gradpeel audit` writes to a terminal, drawn as one."""
    written = subprocess.run(
        [sys.executable, "-m", "gradpeel", *COMMAND.split()[1:]],
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(LETTERS)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    console = Console(record=True, width=LETTERS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {COMMAND}\n{written}"))
    # The drawing would ask a server for its font; any of the machine's will do.
    plain = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="gradpeel"), flags=re.DOTALL)
    page = started.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5)
    page.set_content(plain)
    taken = page.locator("svg").screenshot(omit_background=True)
    page.close()
    return _small(taken, COLOURS)


def _small(picture: bytes, colours: int | None) -> bytes:
    """A PNG file as small as it gets, in so many colours or in all of them."""
    file = io.BytesIO()
    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    (whole if colours is None else whole.quantize(colours)).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
