"""Activations that are silent below a threshold, and what scales their input, are a ReLU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp
from gradpeel.errors import ModelRefusedError
from gradpeel.target import split, with_first_layer

FEATURES, NEURONS = 40, 150


class Between(nn.Module):
    """Two layers with a function between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, NEURONS), nn.Linear(NEURONS, 5)
        self.between = between

    def forward(self, x: Tensor) -> Any:
        return self.two(self.between(self.one(x)))


def norm() -> nn.BatchNorm1d:
    """A batch norm that has seen data; some of its weights are negative."""
    made = nn.BatchNorm1d(NEURONS)
    for tensor, low, high in (
        (made.running_mean, -0.3, 0.3),
        (made.running_var, 0.5, 2.0),
        (made.weight, -1.0, 2.0),
        (made.bias, -0.5, 0.3),
    ):
        assert isinstance(tensor, Tensor)
        nn.init.uniform_(tensor, low, high)
    return made


def chain(*between: nn.Module, bias: bool = True) -> nn.Module:
    first = nn.Linear(FEATURES, NEURONS, bias=bias)
    return nn.Sequential(first, *between, nn.Linear(NEURONS, 5)).eval()


# Every network with the bias that it has, and whether the next layer's gradient can be used.
SILENT: dict[str, tuple[Callable[[], nn.Module], str, bool]] = {
    "batch norm": (lambda: chain(norm(), nn.ReLU()), "0.bias", True),
    "batch norm instead of a bias": (lambda: chain(norm(), nn.ReLU(), bias=False), "1.bias", True),
    "scaled by constants": (lambda: Between(lambda z: (2 * z - 0.1).relu()), "one.bias", True),
    "clamp at zero": (lambda: Between(lambda z: z.clamp(min=0)), "one.bias", True),
    "clamp_min": (lambda: Between(lambda z: torch.clamp_min(z, 0)), "one.bias", True),
    "threshold at zero": (lambda: chain(nn.Threshold(0, 0)), "0.bias", True),
    "ReLU6": (lambda: chain(nn.ReLU6()), "0.bias", False),
    "relu6 in place": (
        lambda: Between(lambda z: functional.relu6(z, inplace=True)),
        "one.bias",
        False,
    ),
    "a low cap": (lambda: Between(lambda z: z.clamp(0, 0.3)), "one.bias", False),
    "Hardtanh": (lambda: chain(nn.Hardtanh(0.1, 0.6)), "0.bias", False),
    "hardtanh": (lambda: Between(lambda z: functional.hardtanh(z, 0.1, 0.6)), "one.bias", False),
    "Threshold": (lambda: chain(nn.Threshold(0.1, -2)), "0.bias", False),
    "norm and cap": (lambda: chain(norm(), nn.ReLU6()), "0.bias", False),
    "Hardswish": (lambda: Between(lambda z: functional.hardswish(9 * z - 3)), "one.bias", False),
    "Hardsigmoid": (
        lambda: Between(lambda z: functional.hardsigmoid(9 * z - 3)),
        "one.bias",
        False,
    ),
}


def batch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, FEATURES, generator=generator)
    return x, torch.arange(size) % 5


@pytest.mark.parametrize(("make", "bias", "by_next"), SILENT.values(), ids=SILENT)
def test_the_parts_make_up_the_network(
    make: Callable[[], nn.Module], bias: str, by_next: bool
) -> None:
    torch.manual_seed(0)
    model, (x, _) = make().double(), batch(6)
    target = split(model)
    assert target.bias_name == bias
    assert (target.tail.next_layer is not None) == by_next
    torch.testing.assert_close(target.logits(x.double()), model(x.double()))


@pytest.mark.parametrize("make", [make for make, *_ in SILENT.values()], ids=SILENT)
def test_a_batch_is_read_whole(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    found = gp.audit(make(), *batch(6))
    score = found.score
    assert (score.recovered, score.false_certificates, score.label_accuracy) == (6, 0, 1.0)
    assert found.recovery.complete
    assert (found.membership.count("in"), found.wrong_memberships) == (6, 0)


@pytest.mark.parametrize("make", [make for make, *_ in SILENT.values()], ids=SILENT)
def test_gradients_are_those_of_the_layer_that_the_relu_sees(
    make: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model, (x, y) = make().double(), batch(6)
    target = split(model)
    update = target.seen_from_relu(gp.local_update(model, x, y))
    rows = x.double()
    z = target.pre_activations(rows).requires_grad_()
    (c,) = torch.autograd.grad(functional.cross_entropy(target.tail(z.relu()), y), z)
    torch.testing.assert_close(update.gradients[target.weight_name], c.T @ rows)
    torch.testing.assert_close(update.gradients[target.bias_name], c.sum(0))


@pytest.mark.parametrize("make", [make for make, *_ in SILENT.values()], ids=SILENT)
def test_the_layer_can_be_set_through_what_scales_it(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make().double()
    target = split(model)
    weight, bias = torch.randn_like(target.weight), torch.randn_like(target.bias)
    shaped = split(with_first_layer(model, target, weight, bias))
    torch.testing.assert_close(shaped.weight, weight)
    torch.testing.assert_close(shaped.bias, bias)
    same = with_first_layer(model, target, target.weight, target.bias)
    for old, new in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(old, new)


def test_a_small_input_is_not_lost_beside_a_threshold() -> None:
    torch.manual_seed(0)
    model = chain(nn.Hardswish())
    for layer in (model[0], model[2]):  # type: ignore[index]
        nn.init.zeros_(layer.bias)
    x = 1e-8 * batch(3)[0]
    target = split(model)
    target.check_on(x)
    torch.testing.assert_close(target.logits(x), model(x), rtol=1e-5, atol=0)


def test_several_steps_with_a_norm_are_refused() -> None:
    model, (x, y) = chain(norm(), nn.ReLU()), batch(4)
    client = gp.Client(lr=0.1, local_steps=2)
    message = "several local steps: BatchNorm1d '1' scales what Linear '0' puts out"
    with pytest.raises(ModelRefusedError, match=message):
        gp.audit(model, x, y, client=client)
    with pytest.raises(ModelRefusedError, match=message):
        gp.peel(model, gp.local_update(model, x, y, client))


@pytest.mark.slow
def test_several_steps_with_a_threshold_are_read() -> None:
    torch.manual_seed(0)
    client = gp.Client(lr=0.01, local_steps=3)
    found = gp.audit(chain(nn.Hardtanh(0.1, 0.6)), *batch(5), client=client)
    assert found.score.false_certificates == 0
    assert found.membership.count("in") == 5
