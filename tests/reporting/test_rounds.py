"""What the client sent, in words, in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rich.console import RenderableType

from gradpeel import Client, audit, report
from gradpeel.audit import Audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.networks import mlp
from gradpeel.reporting import save_figures, summary
from gradpeel.reporting.rounds import local_training, what_was_sent

CLIENT = Client(
    lr=0.05,
    local_epochs=2,
    local_batch_size=4,
    momentum=0.9,
    weight_decay=1e-4,
    dtype=torch.float64,
)


@pytest.fixture(scope="module")
def trained(digits: Dataset) -> Audit:
    """A round of several local steps."""
    import numpy as np

    batch = draw_batch(digits, 8)
    model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    return audit(model, batch.x, batch.y, client=CLIENT)


def test_the_words(trained: Audit, whole: Audit) -> None:
    assert what_was_sent(whole) == "one gradient"
    assert local_training(whole) is None
    assert what_was_sent(trained) == "one update of 4 local steps"
    assert local_training(trained) == (
        "4 steps of SGD, learning rate 0.05, 4 samples per step, momentum 0.9, weight decay 0.0001"
    )


def test_samples_that_took_no_part_are_told(trained: Audit) -> None:
    few = replace(trained, client=replace(CLIENT, local_epochs=None, local_steps=1))
    assert "4 samples per step, 4 of 8 samples took part, momentum" in str(local_training(few))


def test_the_terminal_tells_how_the_client_trained(
    trained: Audit, printed: Callable[[RenderableType], str]
) -> None:
    text = " ".join(printed(summary(trained, data="digits")).replace("│", " ").split())
    assert "update of 4 local steps" in text
    assert "4 steps of SGD, learning rate 0.05, 4 samples per step" in text
    assert "the server sees the difference of weights" in text
    assert "a neuron counts if it fired on the sample in any step" in text
    assert "used for labels only: the update is the sum of the gradients of 4 local steps" in text
    assert "gradient and one attack" not in text


@pytest.mark.slow
def test_the_page_tells_it_too(trained: Audit, digits: Dataset, tmp_path: object) -> None:
    page = report(trained, digits)
    held = {fact.name: fact.text for fact in page.payload.setting}
    assert held["Local training"].startswith("4 steps of SGD, learning rate 0.05")
    setup = {fact.name: fact.text for fact in page.payload.story.setup}
    assert "difference of weights" in setup["Local training"]
    assert "one update of 4 local steps" in page.html or "this update of 4 local" in page.html
    assert len(save_figures(trained, digits, tmp_path)) >= 1  # type: ignore[arg-type]
