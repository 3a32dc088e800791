from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from gradpeel import Attacker, Audit, audit
from gradpeel.datasets import Dataset, assemble, draw_batch, load
from gradpeel.networks import mlp
from gradpeel.reporting import rebuilt_photo, save_figures
from gradpeel.reporting.matching import found_at

Tiles = tuple[Audit, NDArray[np.int64]]


def shown(axes: Axes) -> NDArray[np.float64]:
    return np.asarray(axes.get_images()[0].get_array())


def grey(picture: NDArray[np.float64]) -> int:
    """How many pixels are where no tile is."""
    return int(np.equal(picture, 0.5).all(-1).sum())


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return load("photos")


@pytest.fixture(scope="module")
def tiles(photos: Dataset) -> Tiles:
    """A shuffled part of the photograph, and where in it each tile belongs."""
    batch = draw_batch(photos, 24, shuffle=True, rng=np.random.default_rng(1))
    model = mlp(3072, 10, (150,), rng=np.random.default_rng(0), sample_shape=(32, 32, 3))
    return audit(model, batch.x, batch.y, attacker=Attacker(data_range=(0, 1))), batch.indices


def test_tiles_return_to_their_places(tiles: Tiles, photos: Dataset) -> None:
    found, indices = tiles
    assert found.score.recovered > 0
    figure = rebuilt_photo(found, photos)
    original, rebuilt, *stages = (shown(axes) for axes in figure.axes)
    in_batch = np.isin(np.arange(260), indices)
    np.testing.assert_array_equal(original, assemble(photos.x_train, in_batch))

    places = found_at(found)
    recovered = np.zeros_like(photos.x_train)
    here = places >= 0
    recovered[indices[here]] = found.recovery.samples[places[here]]
    present = np.isin(np.arange(260), indices[here])
    np.testing.assert_array_equal(rebuilt, np.clip(assemble(recovered, present), 0, 1))

    missing = [grey(stage) for stage in stages]
    assert missing == sorted(missing, reverse=True)
    assert all(count > grey(rebuilt) for count in missing)


def test_titles_count_tiles(tiles: Tiles, photos: Dataset) -> None:
    found, _ = tiles
    titles = [axes.get_title() for axes in rebuilt_photo(found, photos).axes]
    assert titles[0] == "the client's photograph"
    assert titles[1] == f"what the server reads: {found.score.recovered} tiles"
    first = int((found.recovery.rounds == 1).sum())
    assert titles[2] == f"after round 1: {first} tile{'s' * (first != 1)}"


def test_nothing_recovered_is_grey(tiles: Tiles, photos: Dataset) -> None:
    found, _ = tiles
    none = dataclasses.replace(found.score, matches=torch.full_like(found.score.matches, -1))
    figure = rebuilt_photo(dataclasses.replace(found, score=none), photos)
    assert len(figure.axes) == 2
    assert grey(shown(figure.axes[1])) == 416 * 640


@pytest.mark.slow
def test_it_is_saved_with_the_others(tiles: Tiles, photos: Dataset, tmp_path: Path) -> None:
    paths = save_figures(tiles[0], photos, tmp_path)
    names = [path.name for path in paths]
    assert names[0] == "samples.png"
    assert names[-1] == "photograph.png"
    with Image.open(paths[2]) as image:
        image.verify()
