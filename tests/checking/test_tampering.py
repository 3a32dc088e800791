"""The tamper alarm: silent on honest layers, and raised by every design."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.checking.tampering import inspect_layer
from gradpeel.datasets import draw_batch, load
from gradpeel.designs import (
    QBI,
    Layer,
    Pairs,
    Passive,
    SolitonData,
    SolitonFree,
    TrapWeights,
    Tuned,
    TunedFree,
)

NEURONS = 400


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return draw_batch(load("digits"), 512).x.flatten(1)


def shaped(design: Any, *, features: int = 64, batch_size: int = 128, seed: int = 0) -> Layer:
    empty = Layer(torch.zeros(NEURONS, features).double(), torch.zeros(NEURONS).double())
    rng = np.random.default_rng(seed)
    layer: Layer = design.shape(empty, batch_size=batch_size, rng=rng, front=nn.Flatten())
    return layer


def judged(layer: Layer, x: Tensor, dtype: torch.dtype = torch.float32) -> gp.Tampering:
    weight, bias = layer.weight.to(dtype), layer.bias.to(dtype)
    degrees = (x.to(dtype) @ weight.T + bias > 0).sum(0)
    return inspect_layer(weight, bias, x, degrees)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("init", ["torch", "gaussian"])
def test_an_initialised_layer_raises_no_alarm(
    pixels: Tensor, init: Any, dtype: torch.dtype
) -> None:
    for seed in range(5):
        layer = shaped(Passive(init), seed=seed)
        assert judged(layer, pixels[seed * 64 :][:64], dtype).reasons == ()


@pytest.mark.parametrize("weights", ["independent", "mirrored"])
@pytest.mark.parametrize("kind", ["traps", "free", "data", "tuned", "tuned-free"])
def test_every_design_raises_it(pixels: Tensor, kind: str, weights: Any) -> None:
    design = {
        "traps": TrapWeights(0.9, weights),
        "free": SolitonFree(weights),
        "data": SolitonData(pixels[:128], weights),
        "tuned": Tuned(pixels[:128], weights),
        "tuned-free": TunedFree(weights),
    }[kind]
    found = judged(shaped(design), pixels[128:256])
    assert found.suspicious
    assert (found.twins > 0.9) == (weights == "mirrored")
    said = " ".join(found.reasons)
    assert ("more numerous" in said) == (kind == "traps")
    assert ("biases vary" in said) == (kind != "traps" and found.bias_spread > 0.25)


@pytest.mark.parametrize("batch_size", [8, 128])
@pytest.mark.parametrize("kind", ["qbi", "pairs"])
def test_one_low_bias_for_all_neurons_raises_it(pixels: Tensor, kind: str, batch_size: int) -> None:
    standard = (pixels - pixels.mean()) / pixels.std()
    design = QBI() if kind == "qbi" else Pairs(standard[:256])
    layer = shaped(design, batch_size=batch_size)
    for x in (pixels, standard):
        found = judged(layer, x[256:384])
        assert (found.bias_spread, len(found.reasons)) == (0, 1)
        assert "below zero" in found.reasons[0]
    lifted = Layer(layer.weight, torch.zeros_like(layer.bias))
    assert judged(lifted, pixels[256:384]).reasons == ()


def test_mirrored_rows_with_a_weight_that_is_left_over(pixels: Tensor) -> None:
    found = judged(shaped(TrapWeights(0.95, "mirrored"), features=63), pixels[:64, :63])
    assert found.twins > 0.9


def test_a_layer_that_was_shifted_by_training_is_no_trap(pixels: Tensor) -> None:
    honest = shaped(Passive("torch"))
    for shift in (-0.03, -0.01, 0.02):
        moved = Layer(honest.weight + shift, honest.bias)
        assert judged(moved, pixels[:64]).reasons == ()
    assert judged(Layer(honest.weight.clamp(max=0.06), honest.bias), pixels[:64]).suspicious


def test_training_raises_no_alarm() -> None:
    data = load("digits")
    x, y = torch.from_numpy(data.x_train).float(), torch.from_numpy(data.y_train)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    one_class = x[y == 3]
    for step in range(101):
        if step % 25 == 0:
            assert gp.tampering(model, x[:64]).reasons == ()
            assert gp.tampering(model, one_class).reasons == ()
        adam.zero_grad()
        chosen = slice(step * 10, step * 10 + 32)
        torch.autograd.backward(nn.functional.cross_entropy(model(x[chosen]), y[chosen]))
        adam.step()


def test_what_is_reported_beside_the_verdict() -> None:
    weight = torch.tensor([[1.0, -2.0], [1.0, 1.0], [-1.0, -1.0], [-1.0, 2.0]])
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    degrees = (rows @ weight.T > 0).sum(0)
    found = inspect_layer(weight, torch.zeros(4), rows, degrees, layer="1")
    assert (found.singletons, found.neurons, found.layer) == (1, 4, "1")
    assert found.degree_lean == pytest.approx((2 - 2) / 2)
    assert found.rare == 0.25
    assert found.as_dict()["suspicious"] == found.suspicious


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_a_constant_layer_is_no_error(value: float) -> None:
    found = inspect_layer(torch.full((4, 3), value), torch.ones(4), torch.ones(2, 3), torch.ones(4))
    assert found.reasons == ()


def test_a_model_without_such_a_layer_is_refused() -> None:
    with pytest.raises(gp.ModelRefusedError):
        gp.tampering(nn.Linear(4, 2), torch.ones(2, 4))
