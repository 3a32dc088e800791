from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from PIL import Image

from gradpeel import Audit
from gradpeel.datasets import Dataset
from gradpeel.reporting import activation_grid_rounds, originals_and_recovered, save_figures
from gradpeel.reporting.matching import found_at
from gradpeel.reporting.style import pdf, png, svg
from gradpeel.scoring import Outcome

NAMES = ("$\\frac{", "$x$", "名前", "\\", "{0}%s", "a" * 400, "")

FILES = ["samples.png", "samples.svg", "activation_grid.png", "activation_grid.svg"]


def shown(figure: Figure, number: int) -> NDArray[np.float64]:
    """The picture that an axes holds."""
    return np.asarray(figure.axes[number].get_images()[0].get_array())


def test_originals_stand_above_what_was_recovered(whole: Audit, digits: Dataset) -> None:
    figure = originals_and_recovered(whole, digits)
    places = found_at(whole)
    assert len(figure.axes) == 16
    for sample in range(8):
        np.testing.assert_array_equal(shown(figure, 2 * sample), whole.x[sample])
        recovered = whole.recovery.samples[places[sample]]
        np.testing.assert_array_equal(shown(figure, 2 * sample + 1), recovered)
        above, below = figure.axes[2 * sample : 2 * sample + 2]
        assert above.get_title() == str(int(whole.y[sample]))
        assert below.get_xlabel() == f"round {int(whole.recovery.rounds[places[sample]])}"
        assert above.get_position().y0 > below.get_position().y0
        assert above.get_position().x0 == pytest.approx(below.get_position().x0)


@pytest.mark.slow
def test_missing_samples_are_hatched(part: Audit, digits: Dataset) -> None:
    figure = originals_and_recovered(part, digits)
    assert len(figure.axes) == 64
    hatched = [axes.patch.get_hatch() for axes in figure.axes[1::2]]
    said = [axes.get_xlabel() for axes in figure.axes[1::2]]
    places = found_at(part)[np.linspace(0, 39, 32).round().astype(int)]
    assert [bool(hatch) for hatch in hatched] == (places < 0).tolist()
    assert [text == "not recovered" for text in said] == (places < 0).tolist()
    assert all(axes.get_images() for axes in figure.axes[::2])


def test_wrong_labels_are_told(whole: Audit, digits: Dataset) -> None:
    wrong = dataclasses.replace(whole.score, labels_right=~whole.score.labels_right)
    figure = originals_and_recovered(dataclasses.replace(whole, score=wrong), digits)
    assert all(axes.get_xlabel().startswith("mistaken for ") for axes in figure.axes[1::2])


def test_copies_are_shown_as_recovered(doubled: Audit, digits: Dataset) -> None:
    figure = originals_and_recovered(doubled, digits)
    assert len(figure.axes) == 22
    for sample in range(3):
        np.testing.assert_array_equal(shown(figure, 2 * sample + 1), shown(figure, 2 * sample + 17))
    assert all(axes.get_xlabel().startswith("round ") for axes in figure.axes[1::2])


def test_an_unknown_label_is_no_wrong_one(unlabelled: Audit, digits: Dataset) -> None:
    figure = originals_and_recovered(unlabelled, digits)
    assert all(axes.get_xlabel().startswith("round ") for axes in figure.axes[1::2])


@pytest.mark.slow
def test_targets_that_are_no_labels_are_not_shown(
    whole: Audit, digits: Dataset, records: Audit, patients: Dataset
) -> None:
    pictures = dataclasses.replace(whole, y=torch.rand(8, 10))
    figure = originals_and_recovered(pictures, digits)
    assert all(not axes.get_title() for axes in figure.axes)
    table = dataclasses.replace(records, y=torch.rand(12, 2))
    assert png(originals_and_recovered(table, patients), dpi=40)


def test_records_come_as_strips_with_their_values(records: Audit, patients: Dataset) -> None:
    figure = originals_and_recovered(records, patients)
    assert len(figure.axes) == 16
    x = records.x.numpy()
    low, high = x.min(axis=0), x.max(axis=0)
    places = found_at(records)
    for row, sample in enumerate(np.linspace(0, 11, 8).round().astype(int)):
        recovered = records.recovery.samples[places[sample]].numpy()
        below = figure.axes[2 * row + 1]
        np.testing.assert_allclose(shown(figure, 2 * row + 1)[0], (recovered - low) / (high - low))
        texts = [text.get_text() for text in below.texts]
        assert texts[:30] == [f"{value:.2f}" for value in recovered]
        error = np.abs(recovered - x[sample]).max()
        assert f"error {error:.1e}" in texts
    ticks = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert ticks == list(patients.feature_names or ())


@pytest.mark.slow
def test_missing_records_are_hatched_below_the_right_names(
    patients: Dataset, records: Audit
) -> None:
    outcomes = (Outcome.UNREACHED,) * 12
    none = dataclasses.replace(
        records.score, matches=records.score.matches * 0 - 1, outcomes=outcomes
    )
    figure = originals_and_recovered(dataclasses.replace(records, score=none), patients)
    assert all(axes.patch.get_hatch() for axes in figure.axes[1::2])
    assert figure.axes[-1].get_xlim() == (-0.5, 29.5)
    assert png(figure).startswith(b"\x89PNG")


def test_many_features_come_without_values_and_names(digits: Dataset, whole: Audit) -> None:
    """Pictures with the channel first are not drawn as pictures."""
    odd = dataclasses.replace(
        digits, x_train=digits.x_train[:, None, None], x_test=digits.x_test[:, None, None]
    )
    assert not odd.is_image
    figure = originals_and_recovered(whole, odd)
    assert shown(figure, 1).shape == (1, 64)
    assert len(figure.axes[0].texts) == 1
    assert not figure.axes[-1].get_xticklabels()


@pytest.mark.slow
def test_names_from_files_cannot_break_a_figure(
    digits: Dataset, whole: Audit, patients: Dataset, records: Audit
) -> None:
    """A table has room for all of them at once, and so have the labels of eight digits, 0 to 7."""
    names = tuple(islice(cycle(NAMES), 30))
    assert set(whole.y.tolist()) >= set(range(len(NAMES)))
    of_classes = dataclasses.replace(digits, class_names=names[:10])
    assert png(originals_and_recovered(whole, of_classes), dpi=40)
    of_both = dataclasses.replace(patients, class_names=names[:2], feature_names=names)
    assert png(originals_and_recovered(records, of_both), dpi=40)


@pytest.mark.slow
def test_colours_are_drawn_as_they_are(digits: Dataset, whole: Audit) -> None:
    """A third axis of three is colour; the data's own range becomes [0, 1]."""
    three = [np.stack([x] * 3, axis=-1) for x in (digits.x_train, digits.x_test)]
    colour = dataclasses.replace(digits, x_train=three[0], x_test=three[1])
    samples = whole.recovery.samples[..., None].expand(-1, -1, -1, 3)
    found = dataclasses.replace(
        whole,
        truth=whole.truth[..., None].expand(-1, -1, -1, 3) * 5 - 2,
        recovery=dataclasses.replace(whole.recovery, samples=samples * 5 - 2),
    )
    figure = originals_and_recovered(found, colour)
    place = found_at(whole)[3]
    expected = samples[place].numpy().clip(0, 1)
    np.testing.assert_allclose(shown(figure, 7), expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["whole", "part", "nothing", "records"])
def test_saved_files_are_png_and_svg_of_modest_size(
    batch: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue("patients" if batch == "records" else "digits")
    paths = save_figures(request.getfixturevalue(batch), data, tmp_path / "out")
    assert [path.name for path in paths] == FILES
    assert sorted(paths) == sorted((tmp_path / "out").iterdir())
    for path in paths:
        assert path.stat().st_size < 400_000
    for path in paths[::2]:
        with Image.open(path) as image:
            image.verify()
            assert image.format == "PNG"
    for path in paths[1::2]:
        assert path.read_bytes().startswith(b"<?xml")


def test_no_figure_shows_samples_where_they_are_left_out(
    whole: Audit, digits: Dataset, tmp_path: Path
) -> None:
    paths = save_figures(whole, digits, tmp_path, samples=False)
    assert [path.name for path in paths] == FILES[2:]


@pytest.mark.slow
def test_a_figure_that_cannot_be_drawn_leaves_nothing(
    whole: Audit, digits: Dataset, tmp_path: Path
) -> None:
    photos = dataclasses.replace(digits, name="photos")  # and has no photograph in it
    with pytest.raises(ValueError, match="expected at most 260"):
        save_figures(whole, photos, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_pictures_have_true_colours_and_can_be_cut(part: Audit) -> None:
    figure = activation_grid_rounds(part)
    with Image.open(io.BytesIO(png(figure, dpi=50))) as whole:
        assert whole.mode == "RGB"
    box = Bbox.from_extents(0, 0, 2, 1)
    with Image.open(io.BytesIO(png(figure, dpi=50, box=box))) as cut:
        assert cut.size == (100, 50)
    assert b'width="144pt" height="72pt"' in svg(figure, box=box)
    assert b"/MediaBox [ 0 0 144 72 ]" in pdf(figure, box=box)


@pytest.mark.slow
def test_drawing_leaves_no_trace_in_matplotlib() -> None:
    """`import gradpeel` is light, and pyplot, which holds global state, is never loaded."""
    code = """
import sys, gradpeel.reporting
assert "matplotlib" not in sys.modules
from gradpeel.reporting.style import new_figure, png
png(new_figure(1, 1))
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
