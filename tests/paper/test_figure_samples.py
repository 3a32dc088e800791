"""Figures that show samples: teaser, seeds, means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import Passive
from gradpeel.errors import InputError
from gradpeel.paper.figures import means, seeds, teaser
from gradpeel.paper.figures.runs import audited, exposed
from gradpeel.reporting.matching import found_at


def shown(figure: Figure, number: int) -> NDArray[np.float64]:
    """The picture that an axes holds."""
    return np.asarray(figure.axes[number].get_images()[0].get_array())


def in_colour(dataset: Dataset) -> Dataset:
    """The same pictures with three channels that differ."""
    shades = np.array([1.0, 0.5, 0.25])
    x_train, x_test = (x[..., None] * shades for x in (dataset.x_train, dataset.x_test))
    return dataclasses.replace(dataset, x_train=x_train, x_test=x_test)


@pytest.mark.parametrize("batch_size", [6, 40])
@pytest.mark.slow
def test_the_teaser_shows_evenly_spaced_samples_above_what_was_recovered(
    batch_size: int, digits: Dataset
) -> None:
    drawn = teaser(digits, batch_size=batch_size, neurons=200, seed=1)
    found = audited(digits, Passive("gaussian"), batch_size=batch_size, neurons=200, seed=1)
    chosen = np.unique(np.linspace(0, batch_size - 1, 8).round().astype(int)).tolist()
    assert drawn.numbers["shown"] == chosen
    places = found_at(found)
    assert len(drawn.figure.axes) == 2 * len(chosen)
    for number, sample in enumerate(chosen):
        above, below = drawn.figure.axes[2 * number : 2 * number + 2]
        np.testing.assert_array_equal(shown(drawn.figure, 2 * number), found.x[sample])
        assert above.get_title() == str(int(found.y[sample]))
        place = int(places[sample])
        if place < 0:
            assert below.get_xlabel() == "not recovered"
            assert not below.get_images()
        else:
            assert below.get_xlabel() == f"round {int(found.recovery.rounds[place])}"
            rebuilt = found.recovery.samples[place]
            np.testing.assert_array_equal(shown(drawn.figure, 2 * number + 1), rebuilt)
    assert drawn.numbers["recovered"] == found.score.recovered
    assert drawn.numbers["max_abs_error"] == found.score.max_abs_error
    assert sum(drawn.numbers["removed_by_round"]) == len(found.recovery)  # type: ignore[call-overload]
    assert f"largest error of any entry {found.score.max_abs_error:.1e}" in drawn.caption
    title = drawn.figure.texts[0].get_text()
    assert title.startswith(f"{found.score.recovered} of {batch_size} samples")


@pytest.mark.parametrize(
    ("batch_size", "neurons", "seed", "reached_late"), [(60, 200, 2, 0), (16, 100, 3, 4)]
)
@pytest.mark.slow
def test_seeds_fire_sparse_neurons_and_typical_samples_do_not(
    batch_size: int, neurons: int, seed: int, reached_late: int, digits: Dataset
) -> None:
    drawn = seeds(digits, batch_size=batch_size, neurons=neurons, seed=seed)
    found = exposed(digits, Passive("gaussian"), batch_size=batch_size, neurons=neurons, seed=seed)
    grid, rounds = found.grid.numpy(), found.rounds.numpy()
    degrees = grid.sum(axis=1)
    assert drawn.numbers["sparse_neurons"] == np.isin(degrees, [1, 2, 3]).sum()
    fires = np.array([any(0 < d < 4 for d in degrees[grid[:, i]]) for i in range(batch_size)])
    assert (~fires & (rounds > rounds.max() / 2)).sum() == reached_late
    late = (rounds == 0) | (rounds > rounds.max() / 2)
    x = draw_batch(digits, batch_size).x.numpy()
    m = x.mean(axis=(1, 2))
    number = 0
    for name, group in (("seeds", fires), ("typical", ~fires & late)):
        members = np.flatnonzero(group)
        assert 0 < len(members) < batch_size
        numbers: Any = drawn.numbers[name]
        assert numbers["samples"] == len(members)
        assert numbers["mean_m"] == pytest.approx(m[members].mean())
        assert f"{m[members].mean():.3f} over the {len(members)} " in drawn.caption
        assert set(numbers["shown"]) <= set(members.tolist())
        assert len(numbers["shown"]) == min(12, len(members))
        assert (numbers["shown"][0], numbers["shown"][-1]) == (members[0], members[-1])
        for sample in numbers["shown"]:
            np.testing.assert_array_equal(shown(drawn.figure, number), x[sample])
            fate = f"round {rounds[sample]}" if rounds[sample] else "never"
            assert drawn.figure.axes[number].get_xlabel() == f"m = {m[sample]:.2f}\n{fate}"
            number += 1
    assert number == len(drawn.figure.axes)
    titles = [text.get_text() for text in drawn.figure.texts]
    assert any(
        f": {fires.sum()} of {batch_size} samples, mean m = {m[fires].mean():.3f}" in t
        for t in titles
    )


def test_a_group_may_be_empty(digits: Dataset) -> None:
    """Three samples: any neuron that fires is sparse, so all of them are seeds."""
    drawn = seeds(digits, batch_size=3, neurons=50)
    numbers: Any = drawn.numbers["typical"]
    assert numbers == {"samples": 0, "mean_m": None, "shown": [], "shown_m": []}
    assert len(drawn.figure.axes) == 3


@pytest.mark.parametrize("colour", [False, True])
def test_means_are_drawn_on_a_diverging_scale(colour: bool, digits: Dataset) -> None:
    data = in_colour(digits) if colour else digits
    drawn = means(data, batch_size=50)
    mean = data.x_train[:50].mean(axis=0)
    np.testing.assert_allclose(shown(drawn.figure, 0), mean, rtol=1e-12)
    channels = np.moveaxis(mean, -1, 0) if colour else mean[None]
    factor: Any = drawn.numbers["amplification"]
    departures = [channel - channel.mean() for channel in channels]
    largest = max(np.abs(departure).max() for departure in departures)
    assert factor * largest == pytest.approx(0.5)
    assert drawn.numbers["largest_departure"] == pytest.approx(largest)
    assert "red above and blue below" in drawn.caption
    for number, departure in enumerate(departures, start=1):
        np.testing.assert_allclose(shown(drawn.figure, number), departure, atol=1e-12)
        (image,) = drawn.figure.axes[number].get_images()
        assert image.get_clim() == pytest.approx((-largest, largest))
        red, blue, none = image.cmap([1.0, 0.0, 0.5])
        assert red[0] > red[2] + 0.2
        assert blue[2] > blue[0] + 0.2
        assert min(none[:3]) > 0.95
    bar = drawn.figure.axes[-1]
    ticks = [text.get_text() for text in bar.get_xticklabels()]
    assert ticks == [f"−{largest:.2f}", "0", f"+{largest:.2f}"]
    assert len(drawn.figure.axes) == 2 + len(channels)


def test_a_flat_mean_needs_no_scale(digits: Dataset) -> None:
    flat = dataclasses.replace(digits, x_train=np.full_like(digits.x_train, 0.5))
    assert means(flat, batch_size=4).numbers["amplification"] == 1.0


@pytest.mark.parametrize("figure", [teaser, seeds, means])
def test_samples_that_are_no_pictures_are_refused(figure: Any, patients: Dataset) -> None:
    with pytest.raises(InputError, match="expected pictures"):
        figure(patients)


@pytest.mark.parametrize(
    ("figure", "settings"),
    [(teaser, {"neurons": 50}), (seeds, {"neurons": 50}), (means, {})],
)
def test_notes_end_the_caption_that_is_drawn(figure: Any, settings: Any, digits: Dataset) -> None:
    notes = {"digits": "not what the paper has"}
    drawn = figure(digits, batch_size=4, notes=notes, **settings)
    assert drawn.caption.endswith(". digits: not what the paper has.")
    assert " ".join(drawn.figure.texts[1].get_text().split()) == drawn.caption
