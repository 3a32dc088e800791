"""The README's animation: a photograph assembles, round by round, from one gradient.

    python -m benchmarks.assembling [--out docs/images/assembling.webp]

The audit is the one that `gradpeel demo` runs on its photograph of a dahlia. A tile
appears in the round of the cascade in which it was recovered, with the pixels that were recovered.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import gradpeel as gp
from gradpeel.datasets import assemble, draw_batch, load
from gradpeel.networks import mlp

__all__ = ["frames", "save"]

TILES, NEURONS = 260, 2000
"""As in the demo."""
WIDTH, HEIGHT, TILE, BAR = 640, 416, 32, 44
"""Pixels: the photograph, one of its tiles, and the bar under it."""
PAPER, LINE, INK, FILL = "#16191d", "#262b31", "#e8eaed", "#ea580c"
"""Dark, so that it looks the same on light and on dark pages."""
FIRST_MS, ROUND_MS, LAST_MS = 500, 650, 4000
REPEATS = 3
"""After that the finished photograph stays."""
QUALITY = 82


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.assembling",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images/assembling.webp"))
    given = parser.parse_args()
    save(frames(), given.out)
    print(f"{given.out}: {given.out.stat().st_size} bytes")


def frames(tiles: int = TILES, neurons: int = NEURONS) -> list[Image.Image]:
    """One picture before the cascade and one after each of its rounds."""
    data = load("photos")
    batch = draw_batch(data, tiles)
    model = mlp(
        data.features,
        data.classes,
        (neurons,),
        rng=np.random.default_rng([0, 0]),
        sample_shape=data.sample_shape,
    )
    audit = gp.audit(model, batch.x, batch.y, attacker=gp.Attacker(data_range=data.data_range))
    right = audit.score.matches >= 0
    places = audit.score.matches[right].numpy()
    rebuilt = np.zeros((tiles, *data.sample_shape))
    rebuilt[places] = audit.recovery.samples[right].numpy()
    found_in = np.zeros(tiles, dtype=np.int64)
    found_in[places] = audit.recovery.rounds[right].numpy()
    return [
        _frame(rebuilt, (found_in > 0) & (found_in <= number), number)
        for number in range(int(found_in.max()) + 1)
    ]


def _frame(tiles: NDArray[np.float64], shown: NDArray[np.bool_], number: int) -> Image.Image:
    picture = Image.new("RGB", (WIDTH, HEIGHT + BAR), PAPER)
    draw = ImageDraw.Draw(picture)
    for x in range(0, WIDTH, TILE):
        for y in range(0, HEIGHT, TILE):
            draw.rectangle((x, y, x + TILE, y + TILE), outline=LINE)
    photograph = (assemble(tiles, shown).clip(0, 1) * 255).round().astype(np.uint8)
    where = assemble(np.ones_like(tiles), shown)[..., 0] == 1
    picture.paste(Image.fromarray(photograph), (0, 0), Image.fromarray(where))
    draw.rectangle((0, HEIGHT, WIDTH, HEIGHT + 6), fill=LINE)
    if shown.any():
        draw.rectangle((0, HEIGHT, WIDTH * shown.mean(), HEIGHT + 6), fill=FILL)
    font = ImageFont.load_default(18)
    middle = HEIGHT + 6 + (BAR - 6) // 2
    left = "one gradient" if number == 0 else f"round {number}"
    right = f"{shown.sum()} of {len(shown)} tiles recovered"
    draw.text((8, middle), left, INK, font, anchor="lm")
    draw.text((WIDTH - 8, middle), right, INK, font, anchor="rm")
    return picture


def save(pictures: list[Image.Image], path: Path) -> None:
    """Write the frames as an animation."""
    durations = [FIRST_MS] + [ROUND_MS] * (len(pictures) - 2) + [LAST_MS]
    first, *others = pictures
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=durations,
        loop=REPEATS,
        quality=QUALITY,
        method=6,
    )


if __name__ == "__main__":
    main()
