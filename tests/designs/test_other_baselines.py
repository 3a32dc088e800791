"""TunedFree, QBI and PAIRS: what each assumes, and that it does what it says on such data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gradpeel.designs import QBI, Design, Layer, Pairs, SolitonFree, TunedFree
from gradpeel.errors import InputError
from gradpeel.exposure import peel_grid


def _shape(design: Design, neurons: int, features: int, batch_size: int) -> Layer:
    empty = torch.zeros(neurons, features, dtype=torch.float64)
    return design.shape(
        Layer(empty, empty[:, 0]),
        batch_size=batch_size,
        rng=np.random.default_rng(0),
        front=torch.nn.Flatten(),
    )


def _degrees(layer: Layer, x: Tensor) -> Tensor:
    return (x @ layer.weight.T + layer.bias > 0).sum(dim=0)


def _standardised(count: int, features: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, features)))


def test_qbi_fires_on_one_of_b_standardised_samples() -> None:
    layer = _shape(QBI(), 2000, 64, batch_size=50)
    assert bool((layer.bias == layer.bias[0]).all())
    degrees = _degrees(layer, _standardised(50, 64, seed=1)).double()
    assert float(degrees.mean()) == pytest.approx(1.0, abs=0.15)


def test_pairs_isolates_more_of_its_own_data_than_qbi() -> None:
    auxiliary = _standardised(100, 64, seed=2)
    by_quantile = _degrees(_shape(QBI(), 300, 64, 50), auxiliary[:50])
    searched = _shape(Pairs(auxiliary), 300, 64, 50)
    isolates = [_degrees(searched, half) == 1 for half in (auxiliary[:50], auxiliary[50:])]
    assert float(torch.stack(isolates).all(dim=0).double().mean()) > 0.8
    assert float((by_quantile == 1).double().mean()) < 0.5


def test_pairs_keeps_the_best_of_its_tries() -> None:
    auxiliary = _standardised(400, 16, seed=3)  # eight batches: no neuron suits all of them
    found: list[int] = [
        sum(
            int((_degrees(_shape(Pairs(auxiliary, tries=tries), 100, 16, 50), part) == 1).sum())
            for part in auxiliary.reshape(8, 50, 16)
        )
        for tries in (1, 20)
    ]
    assert found[1] > found[0] + 50


@pytest.mark.parametrize("tries", [0, 1.5])
def test_pairs_tries_at_least_once(tries: float) -> None:
    with pytest.raises(InputError, match=f"^tries={tries}: expected a positive integer"):
        Pairs(torch.rand(4, 3), tries=tries)  # type: ignore[arg-type]


def test_tuned_free_gains_where_samples_have_a_level_in_common() -> None:
    """Bright and dark pictures: each sample a level of its own, and less variation about it."""
    rng = np.random.default_rng(5)
    level = rng.uniform(0.05, 0.4, size=(100, 1))
    x = torch.from_numpy((level + 0.25 * rng.normal(size=(100, 196))).clip(0, 1))
    rates = {}
    for design in (SolitonFree(), TunedFree()):
        layer = _shape(design, 300, 196, batch_size=100)
        rates[design.name] = float(
            (peel_grid((x @ layer.weight.T + layer.bias > 0).T) > 0).double().mean()
        )
    assert rates["tuned-free"] > rates["soliton-free"] + 0.1


def test_tuned_free_takes_half_of_a_rows_mean_away() -> None:
    means = [
        float(_shape(design, 60, 50, 20).weight.sum(dim=1).abs().mean())
        for design in (SolitonFree(), TunedFree())
    ]
    assert means[1] / means[0] == pytest.approx(0.5, rel=0.25)


def test_tuned_free_refuses_features() -> None:
    class Features(torch.nn.Flatten):
        space = "features"

    with pytest.raises(InputError, match=r"^tuned-free: the layer receives features"):
        TunedFree().shape(
            Layer(torch.zeros(3, 4).double(), torch.zeros(3).double()),
            batch_size=2,
            rng=np.random.default_rng(0),
            front=Features(),
        )
