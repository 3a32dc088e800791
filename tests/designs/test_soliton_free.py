from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from gradpeel.designs import Construction, Layer, RobustSoliton, SolitonFree
from gradpeel.errors import InputError


@dataclass(frozen=True)
class Fixed(RobustSoliton):
    """Gives every neuron the same degree."""

    degree: int = 1

    def probabilities(self, batch_size: int) -> NDArray[np.float64]:
        mass = np.zeros(batch_size)
        mass[self.degree - 1] = 1
        return mass


def _shape(design: SolitonFree, neurons: int, features: int, batch_size: int) -> Layer:
    layer = Layer(torch.ones(neurons, features).double(), torch.ones(neurons).double())
    rng = np.random.default_rng(0)
    return design.shape(layer, batch_size=batch_size, rng=rng, front=torch.nn.Flatten())


def _uniform(samples: int, features: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(samples, features, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("construction", ["independent", "mirrored"])
@pytest.mark.parametrize("degree", [1, 2, 5, 10, 19])
def test_biases_are_the_papers_formula(construction: Construction, degree: int) -> None:
    design = SolitonFree(construction, Fixed(degree=degree))
    layer = _shape(design, neurons=30, features=17, batch_size=20)
    weight = layer.weight.numpy()
    mean = 0.5 * weight.sum(axis=1)
    deviation = np.sqrt((weight**2).sum(axis=1) / 12)
    expected = -mean - deviation * norm.ppf(1 - degree / 20)
    np.testing.assert_allclose(layer.bias.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("construction", ["independent", "mirrored"])
def test_a_neuron_fires_on_its_share_of_uniform_samples(construction: Construction) -> None:
    samples = _uniform(4000, 150)
    for degree in (1, 4, 16, 31):
        layer = _shape(SolitonFree(construction, Fixed(degree=degree)), 50, 150, batch_size=32)
        fired = (samples @ layer.weight.T + layer.bias > 0).double().mean()
        assert float(fired) == pytest.approx(degree / 32, abs=0.01)


@pytest.mark.parametrize("construction", ["independent", "mirrored"])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_degree_b_fires_always(construction: Construction, batch_size: int) -> None:
    design = SolitonFree(construction, Fixed(degree=batch_size))
    layer = _shape(design, 500, 60, batch_size)
    assert bool((_uniform(4000, 60) @ layer.weight.T + layer.bias > 0).all())
    mean, deviation = layer.weight.sum(dim=1) / 2, layer.weight.norm(dim=1) / 12**0.5
    margin = (mean + layer.bias) / deviation
    # Further out than any other degree, and no further than the logits can bear.
    assert 8 < float(margin.min()) <= float(margin.max()) < 8.5


def test_degree_b_fires_on_the_darkest_and_the_worst_sample_of_few_features() -> None:
    # Up to 22 features the margin is a hard bound: 8.2 |w| / sqrt(12) >= |w|_1 / 2.
    layer = _shape(SolitonFree(soliton=Fixed(degree=8)), 500, 22, batch_size=8)
    worst = (layer.weight < 0).double()  # a sample in [0, 1]^F for each neuron of its own
    assert bool(((worst * layer.weight).sum(dim=1) + layer.bias > 0).all())
    assert bool((layer.bias > 0).all())


def test_degrees_come_from_the_soliton() -> None:
    # With the threshold's quantile read back from the bias, degrees follow the robust soliton.
    layer = _shape(SolitonFree(), neurons=4000, features=20, batch_size=16)
    weight = layer.weight.numpy()
    deviation = np.sqrt((weight**2).sum(axis=1) / 12)
    share = norm.cdf((layer.bias.numpy() + weight.sum(axis=1) / 2) / deviation)
    degrees = np.rint(16 * share).astype(int)
    np.testing.assert_allclose(16 * share, degrees, atol=1e-5)
    counts = np.bincount(degrees, minlength=17)[1:]
    probabilities = RobustSoliton().probabilities(16)
    deviations = np.sqrt(4000 * probabilities * (1 - probabilities))
    assert (np.abs(counts - 4000 * probabilities) < 4 * deviations).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SolitonFree(sigma=-0.5), "sigma=-0.5: expected a positive number"),
        (
            lambda: SolitonFree(cast("Construction", "")),
            "construction='': expected 'independent' or 'mirrored'",
        ),
        (
            lambda: SolitonFree(soliton=cast("RobustSoliton", 0.05)),
            "soliton=0.05: expected a gradpeel.designs.RobustSoliton",
        ),
        (
            lambda: _shape(SolitonFree(), 2, 2, batch_size=0),
            "batch_size=0: expected a positive integer",
        ),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
