"""Pictures of the report page for README and documentation, taken in a real browser.

    python -m benchmarks.screenshots [--out docs/images] [--only digits]

The pages are those of `gradpeel demo`, so they show nothing but scikit-learn's own data.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, FloatRect

from benchmarks.browsing import audited, browser
from gradpeel.datasets import load
from gradpeel.files import write_files

Scheme = Literal["light", "dark"]

CASES = {"photos": (260, 2000), "digits": (64, 1000)}
"""Data sets with batch size and number of neurons, as in the demo."""
WIDTH, HEIGHT = 1280, 800
COLOURS = 256
"""In a picture; a third of the size for pages that are mostly plain."""

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
    parser.add_argument("--only", choices=sorted(CASES))
    given = parser.parse_args()
    pictures: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        for name in CASES if given.only is None else [given.only]:
            file = audited(load(name), *CASES[name]).save(Path(folder) / f"{name}.html")
            for scheme in ("light", "dark"):
                pictures |= _taken(started, file, name, scheme)
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
    taken = {
        f"report_{name}_{scheme}.png": _small(first),
        f"report_{name}_cascade_{scheme}.png": _small(page.screenshot(full_page=True, clip=clip)),
    }
    page.close()
    return taken


def _small(picture: bytes) -> bytes:
    file = io.BytesIO()
    few = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
    few.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
