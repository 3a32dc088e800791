from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.assembling import HEIGHT, WIDTH, frames, save
from gradpeel.datasets import load


@pytest.mark.slow
def test_the_photograph_assembles_from_what_was_recovered(tmp_path: Path) -> None:
    pictures = frames(tiles=12, neurons=300)
    assert len(pictures) >= 2
    original = (load("photos").x_train[0] * 255).round()
    last = np.asarray(pictures[-1], dtype=float)[:HEIGHT, :WIDTH]
    assert np.abs(last[:32, :32] - original).max() <= 1
    first = np.asarray(pictures[0])[:HEIGHT, :WIDTH]
    assert len(np.unique(first.reshape(-1, 3), axis=0)) == 2  # nothing but an empty grid

    save(pictures, tmp_path / "small.webp")
    with Image.open(tmp_path / "small.webp") as animation:
        assert getattr(animation, "n_frames", 1) == len(pictures)
        assert animation.size == pictures[0].size
