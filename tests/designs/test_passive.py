from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from gradpeel.designs import Layer, Passive
from gradpeel.designs.passive import Init
from gradpeel.errors import InputError


def _shape(design: Passive, layer: Layer, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    return design.shape(layer, batch_size=8, rng=rng, front=torch.nn.Flatten())


@pytest.fixture
def layer() -> Layer:
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(200, 25, generator=generator, dtype=torch.float64)
    return Layer(weight, torch.rand(200, generator=generator, dtype=torch.float64))


def test_keep_returns_the_layer_itself(layer: Layer) -> None:
    assert _shape(Passive(), layer) is layer


def test_gaussian_is_the_papers_start(layer: Layer) -> None:
    shaped = _shape(Passive("gaussian", sigma=0.25), layer)
    assert kstest(shaped.weight.flatten().numpy(), norm(scale=0.25).cdf).pvalue > 1e-3
    assert not shaped.bias.any()


def test_torch_has_the_law_of_a_fresh_linear(layer: Layer) -> None:
    shaped = _shape(Passive("torch"), layer)
    torch.manual_seed(0)
    fresh = torch.nn.Linear(25, 200)
    assert kstest(shaped.weight.flatten(), fresh.weight.detach().flatten()).pvalue > 1e-3
    assert float(shaped.weight.abs().max()) <= 1 / 5
    assert float(shaped.bias.abs().max()) <= 1 / 5
    assert float(shaped.bias.abs().mean()) == pytest.approx(1 / 10, rel=0.2)


def test_words() -> None:
    assert not Passive().active
    assert [Passive(init).weights for init in ("keep", "gaussian", "torch")] == [
        "keep",
        "gaussian",
        "torch",
    ]


@pytest.mark.parametrize(
    ("init", "sigma", "message"),
    [
        ("zeros", 0.5, "init='zeros': expected 'keep', 'gaussian' or 'torch'"),
        ("gaussian", -1.0, "sigma=-1.0: expected a positive number"),
    ],
)
def test_errors(init: str, sigma: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Passive(cast("Init", init), sigma)
    assert str(caught.value) == message
