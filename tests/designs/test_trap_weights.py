from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch

from gradpeel.designs import Construction, Layer, Passive, TrapWeights
from gradpeel.errors import InputError


def _shape(design: TrapWeights | Passive, neurons: int = 300, features: int = 101) -> Layer:
    layer = Layer(torch.ones(neurons, features).double(), torch.ones(neurons).double())
    rng = np.random.default_rng(0)
    return design.shape(layer, batch_size=8, rng=rng, front=torch.nn.Flatten())


def test_independent_at_scale_one_is_the_honest_start() -> None:
    trapped, honest = _shape(TrapWeights(scale=1.0)), _shape(Passive("gaussian"))
    assert torch.equal(trapped.weight, honest.weight)
    assert torch.equal(trapped.bias, honest.bias)


@pytest.mark.parametrize("construction", ["independent", "mirrored"])
def test_biases_are_zero_and_smaller_scales_fire_less(construction: Construction) -> None:
    samples = torch.rand(200, 101, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def firing(scale: float) -> float:
        layer = _shape(TrapWeights(scale, construction))
        assert not layer.bias.any()
        return float((samples @ layer.weight.T > 0).double().mean())

    shares = [firing(scale) for scale in (1.0, 0.9, 0.7, 0.4)]
    assert shares == sorted(shares, reverse=True)
    assert 0.35 < shares[0] < 0.65
    assert shares[-1] < 0.01


def test_repr_prints_the_settings() -> None:
    assert repr(TrapWeights(0.9)) == (
        "TrapWeights(scale=0.9, construction='independent', sigma=0.5)"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TrapWeights(scale=0.0), "scale=0.0: expected a number above 0 and at most 1"),
        (lambda: TrapWeights(scale=2.0), "scale=2.0: expected a number above 0 and at most 1"),
        (lambda: TrapWeights(sigma=0.0), "sigma=0.0: expected a positive number"),
        (
            lambda: TrapWeights(construction=cast("Construction", "both")),
            "construction='both': expected 'independent' or 'mirrored'",
        ),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
