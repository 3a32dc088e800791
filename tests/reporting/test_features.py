"""What is said of features: never that they are samples, and never a picture of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import RenderableType
from torch import nn

import gradpeel as gp
from gradpeel import Audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.reporting import peel_summary, save_figures, summary
from gradpeel.reporting.membership_summary import membership_summary
from gradpeel.reporting.samples import originals_and_recovered

FURTHER = (
    "feature vectors that enter layer `head.0`, 100 features each; reconstructing inputs from them "
    "is a further step (`gradpeel.invert`)"
)


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 4)
        self.head = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.conv(x.unsqueeze(1)).relu().flatten(1))
        return logits


def flat(text: str) -> str:
    """The words of a panel, without its frame and its line breaks."""
    lines = (line.strip("│ ") for line in text.splitlines()[1:-1])
    return " ".join(" ".join(lines).split())


@pytest.fixture(scope="module")
def found(digits: Dataset) -> Audit:
    torch.manual_seed(0)
    batch = draw_batch(digits, 8)
    return gp.audit(Net(), batch.x, batch.y)


def test_the_terminal_says_what_came_back(
    found: Audit, printed: Callable[[RenderableType], str]
) -> None:
    text = flat(printed(summary(found, data="digits")))
    assert text.startswith("All 8 feature vectors were recovered from one gradient, with their lab")
    assert FURTHER in text
    assert "Feature vectors recovered per round" in text
    assert "How the feature vectors were read" in text
    assert "200 neurons with 100 inputs each (layer head.0)" in text
    assert "equals the update in layer `head.0` and every layer behind it" in text
    assert "not inputs. To find out how much of an input they reveal" in text
    assert "samples were recovered" not in text


def test_a_decoded_update_says_it_too(
    found: Audit, printed: Callable[[RenderableType], str]
) -> None:
    text = flat(printed(peel_summary(gp.peel(found.model, found.update), classes=10)))
    assert text.startswith("All 8 feature vectors behind this update were recovered, each with its")
    assert FURTHER in text
    assert "Feature vectors are personal data." in text
    told = flat(printed(membership_summary(found.membership)))
    assert "by the feature vectors that enter layer `head.0`" in told


def test_the_page_shows_no_pictures_of_features(found: Audit, digits: Dataset) -> None:
    page = gp.report(found, digits)
    payload = page.payload
    assert payload.story.severity.name == "Complete exposure of feature vectors"
    assert (payload.space, payload.layer) == ("features", "head.0")
    assert payload.mosaic is None
    assert payload.all_features == 100
    assert payload.features[:2] == ("feature 0", "feature 1")
    assert not payload.in_units
    assert all(sample.psnr is None and sample.ssim is None for sample in payload.samples)
    assert payload.samples[0].values[0] == float(found.truth[0, 0])
    assert payload.story.recovered == FURTHER
    assert "feature vectors that enter layer <code>head.0</code>" in page.html
    assert "Feature vector of sample" in page.html
    assert "Originals above, what the server recovered below." not in page.html
    assert "of the feature vectors were read" in page.html
    assert 'aria-label="Of 8 feature vectors: ' in page.html
    assert ("Layer", "head.0: the model's own weights") in [
        (row.name, row.text) for row in payload.setting
    ]
    assert json.loads(payload.to_json())["space"] == "features"


@pytest.mark.slow
def test_figures_are_strips(found: Audit, digits: Dataset, tmp_path: Path) -> None:
    title = originals_and_recovered(found, digits).texts[0].get_text()
    assert title == "8 of 8 feature vectors recovered from one gradient"
    names = {path.name for path in save_figures(found, digits, tmp_path)}
    assert names == {
        "samples.png",
        "samples.svg",
        "activation_grid.png",
        "activation_grid.svg",
    }


def test_an_input_is_called_a_sample(whole: Audit, digits: Dataset) -> None:
    page = gp.report(whole, digits)
    assert (page.payload.space, page.payload.story.recovered) == ("input", "")
    assert "feature vector" not in page.html
