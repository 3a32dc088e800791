"""What is known of a local training, and the gradients behind a difference of weights."""

from __future__ import annotations

import math

import pytest
import torch

from gradpeel import InputError, LocalTraining
from gradpeel.training import summed_gradients


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_share_of_the_first_weights_that_pytorch_keeps_is_undone(
    steps: int, weight_decay: float, momentum: float
) -> None:
    generator = torch.Generator().manual_seed(steps)
    before = torch.randn(40, generator=generator, dtype=torch.float64)
    pulls = torch.randn(steps, 40, generator=generator, dtype=torch.float64)

    def train(weight: torch.Tensor) -> torch.Tensor:
        weight = weight.clone().requires_grad_()
        sgd = torch.optim.SGD([weight], lr=0.1, momentum=momentum, weight_decay=weight_decay)
        for pull in pulls:
            weight.grad = pull.clone()
            sgd.step()
        return weight.detach()

    training = LocalTraining(0.1, steps, momentum, weight_decay)
    found = summed_gradients({"w": before}, {"w": train(before)}, training)["w"]
    # The gradients' part does not depend on where the training began.
    alone = -train(torch.zeros_like(before)) / 0.1
    torch.testing.assert_close(found, alone, atol=1e-12, rtol=1e-12)
    if steps == 1:
        torch.testing.assert_close(found, pulls[0], atol=1e-12, rtol=1e-12)


def test_without_lr_or_steps_weight_decay_cannot_be_undone() -> None:
    assert LocalTraining(None, 1, weight_decay=0.1).kept is None
    assert LocalTraining(0.1, None, weight_decay=0.1).kept is None
    assert LocalTraining(None, None, momentum=0.5).kept == 1
    before, after = {"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0])}
    assert summed_gradients(before, after, LocalTraining(None)) == {"w": torch.tensor([2.0])}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.0}, "lr=0.0: expected a number above 0"),
        ({"lr": math.inf}, "lr=inf: expected a number above 0"),
        ({"lr": "0.1"}, "lr='0.1': expected a number above 0"),
        ({"steps": 0}, "steps=0: expected a positive integer"),
        ({"steps": 1.0}, "steps=1.0: expected a positive integer"),
        ({"steps": True}, "steps=True: expected a positive integer"),
        ({"momentum": 1.0}, "momentum=1.0: expected a number from 0 to below 1"),
        ({"momentum": -0.1}, "momentum=-0.1: expected a number from 0 to below 1"),
        ({"weight_decay": -1e-4}, "weight_decay=-0.0001: expected a number of at least 0"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        LocalTraining(**{"lr": 0.1, **settings})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_json_and_back() -> None:
    training = LocalTraining(0.05, 3, 0.9, 1e-4)
    assert LocalTraining.from_json(training.as_json()) == training


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "3", "{}", '{"lr": 1, "x": 2}'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="training: expected a JSON object"):
        LocalTraining.from_json(text)
