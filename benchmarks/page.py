"""How large the report page is, and how long a browser takes until it can be used.

    python -m benchmarks.page --data-dir DIR [--batch-size 512] [--neurons 1000] [--repeat 5]

The page of an audit of CIFAR-10 (Soliton-Data, mirrored) is written to a file and opened from disk,
each time in a fresh context. Measured is the time until the page is loaded (scripts have run by
then, the grid is drawn, the first samples are shown) and a click on "one round on" was answered.
Then it steps through all rounds; the time of a step is the time until the grid is drawn again.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.browsing import audited, browser
from gradpeel.datasets import load

STEPS = """() => {
  const last = gradpeel.page.cascade.steps.length - 1, started = performance.now();
  for (let round = 0; round <= last; round++) {
    gradpeel.cascade.show(round);
    document.getElementById("grid").getContext("2d").getImageData(0, 0, 1, 1);
  }
  return (performance.now() - started) / (last + 1);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--neurons", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    data = load("cifar10", data_dir=given.data_dir)
    page = audited(data, given.batch_size, given.neurons)
    started = time.perf_counter()
    written = len(page.html.encode())
    rendered = time.perf_counter() - started
    opened, steps = [], []
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        file = page.save(Path(folder) / "report.html")
        for _ in range(given.repeat):
            context = chromium.new_context()
            shown = context.new_page()
            started = time.perf_counter()
            shown.goto(file.as_uri(), wait_until="load")
            shown.click("#back")
            opened.append(time.perf_counter() - started)
            steps.append(shown.evaluate(STEPS))
            context.close()
    print(f"{page}")
    print(f"batch size {given.batch_size}, {given.neurons} neurons: {written / 1e6:.2f} MB")
    print(f"rendered in {rendered:.2f} s")
    print(
        f"opened, and one round back by a click: median {statistics.median(opened):.2f} s, "
        f"worst {max(opened):.2f} s of {given.repeat}"
    )
    print(f"a step of the cascade: median {statistics.median(steps):.0f} ms")


if __name__ == "__main__":
    main()
