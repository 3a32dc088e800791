from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from gradpeel import Attacker
from gradpeel.audit import audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import Passive, TrapWeights
from gradpeel.errors import InputError
from gradpeel.networks import mlp
from gradpeel.paper.figures.frame import COLUMN, PAGE, framed
from gradpeel.paper.figures.runs import check_pictures, exposed, title_of, with_notes
from gradpeel.reporting.style import png

LONG = "Words of a caption that goes on for much longer than one line has room for, " * 6


def inches(figure: Figure, text: Text) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a text, from the upper left corner."""
    box = text.get_window_extent()
    height = figure.get_figheight()
    left, right = box.x0 / figure.dpi, box.x1 / figure.dpi
    return left, height - box.y1 / figure.dpi, right, height - box.y0 / figure.dpi


@pytest.mark.parametrize("width", [COLUMN, PAGE])
def test_the_heading_stays_within_the_figure_and_above_the_body(width: float) -> None:
    figure, top = framed(width, 1.5, LONG[:100], LONG)
    assert figure.get_size_inches().tolist() == pytest.approx([width, top + 1.5])
    title, caption = (inches(figure, text) for text in figure.texts)
    for left, _, right, _ in (title, caption):
        assert 0 < left < right < width
    assert 0 < title[1] < title[3] < caption[1] < caption[3] < top
    assert " ".join(figure.texts[1].get_text().split()) == LONG.strip()
    # Wrapped, but not sooner than need be.
    assert caption[2] > 0.8 * width


def test_a_script_that_the_font_lacks_does_no_harm() -> None:
    figure, _ = framed(COLUMN, 1.0, "名前", "名前 $x_{")
    with Image.open(io.BytesIO(png(figure, dpi=40))) as image:
        assert image.size[0] == 140


def test_notes_are_told_of_the_data_that_is_shown() -> None:
    notes = {"mnist": "5 classes instead of 10", "svhn": "another split"}
    assert with_notes("Seen.", notes, "mnist", "cifar10") == "Seen. MNIST: 5 classes instead of 10."
    assert with_notes("Seen.", notes, "mnist", "svhn").endswith("10; SVHN: another split.")
    assert with_notes("Seen.", notes, "cifar10") == "Seen."
    assert with_notes("Seen.", None, "mnist") == "Seen."


def test_names_from_files_are_made_printable() -> None:
    assert title_of("imagenet") == "ImageNet"
    assert title_of("a\x1b[2J") == "a\\x1b[2J"


@pytest.mark.parametrize("design", [Passive("gaussian"), TrapWeights(1.0, "mirrored")])
def test_a_look_at_the_grid_sees_the_network_that_an_audit_sees(
    design: Passive | TrapWeights, digits: Dataset
) -> None:
    batch = draw_batch(digits, 6)
    model = mlp(64, 10, (30,), rng=np.random.default_rng([3, 0]), sample_shape=(8, 8))
    truth = audit(model, batch.x, batch.y, attacker=Attacker(design), seed=3).exposure
    seen = exposed(digits, design, batch_size=6, neurons=30, seed=3)
    np.testing.assert_array_equal(seen.grid, truth.grid)
    np.testing.assert_array_equal(seen.rounds, truth.rounds)


def test_pictures_are_told_from_other_samples(digits: Dataset, patients: Dataset) -> None:
    check_pictures(digits)
    with pytest.raises(InputError, match=r"^breast_cancer has samples of shape \(30,\): expected"):
        check_pictures(patients)
