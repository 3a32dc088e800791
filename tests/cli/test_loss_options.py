from __future__ import annotations

import re

import pytest
import torch

from gradpeel.cli.loss_options import LossName, LossOptions
from gradpeel.errors import InputError
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError

CROSS, SQUARED, BINARY = LossName


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        (LossOptions(), CrossEntropy()),
        (LossOptions(CROSS, 0.1), CrossEntropy(label_smoothing=0.1)),
        (LossOptions(SQUARED), MeanSquaredError()),
        (LossOptions(BINARY), BinaryCrossEntropy()),
    ],
)
def test_options_make_the_loss_they_name(options: LossOptions, loss: Loss) -> None:
    assert options.build() == loss
    assert loss.name.replace(" ", "-") == options.loss


@pytest.mark.parametrize("name", LossName)
def test_the_loss_takes_its_targets(name: LossName) -> None:
    options, labels = LossOptions(name), torch.tensor([2, 0])
    targets = options.targets(labels, 3)
    options.build().check(torch.zeros(2, 3), targets)
    assert targets.tolist() == ([2, 0] if name is CROSS else [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("name", [SQUARED, BINARY])
def test_label_smoothing_is_of_the_cross_entropy(name: LossName) -> None:
    message = f"label_smoothing=0.1: loss {name} has no label_smoothing; cross-entropy has"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        LossOptions(name, 0.1)
