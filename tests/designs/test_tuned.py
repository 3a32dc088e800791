"""Tuned: what it gains, that it never loses, and what its rehearsals promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gradpeel.datasets import draw_batch, load
from gradpeel.designs import Design, Layer, SolitonData, Tuned
from gradpeel.designs.degree_search import GENERATIONS, find_law, spread_evenly
from gradpeel.designs.rehearsal import Rehearsals
from gradpeel.exposure import peel_grid


def _drawn(count: int, features: int, seed: int) -> Tensor:
    """Samples that differ in their distance from the mean, as those of real data do."""
    rng = np.random.default_rng(seed)
    scale = np.exp(0.6 * rng.normal(size=(count, 1)))
    return torch.from_numpy(rng.normal(size=(count, features)) * scale)


def _shape(design: Design, neurons: int, features: int, batch_size: int, seed: int = 0) -> Layer:
    empty = torch.zeros(neurons, features, dtype=torch.float64)
    return design.shape(
        Layer(empty, empty[:, 0]),
        batch_size=batch_size,
        rng=np.random.default_rng(seed),
        front=torch.nn.Flatten(),
    )


def _bound(layer: Layer, x: Tensor) -> float:
    grid = (x.flatten(1) @ layer.weight.T + layer.bias > 0).T
    return float((peel_grid(grid) > 0).double().mean())


@pytest.mark.slow
def test_it_reads_what_the_soliton_leaves() -> None:
    size, features = 160, 40
    auxiliary = _drawn(size, features, seed=1)
    clients = [_drawn(size, features, seed=10 + i) for i in range(20)]
    # Where the cascade of one layer ends depends on few samples: several of them tell.
    gains = []
    for seed in range(4):
        plain = _shape(SolitonData(auxiliary), 240, features, size, seed)
        tuned = _shape(Tuned(auxiliary), 240, features, size, seed)
        assert torch.equal(tuned.weight, plain.weight)
        gains += [_bound(tuned, client) - _bound(plain, client) for client in clients]
    assert np.mean(gains) > 0.1


def test_without_a_gain_it_is_soliton_data_bit_by_bit() -> None:
    auxiliary = _drawn(40, 30, seed=2)
    plain = _shape(SolitonData(auxiliary), 800, 30, 40)  # more neurons than it takes
    tuned = _shape(Tuned(auxiliary), 800, 30, 40)
    assert torch.equal(tuned.weight, plain.weight)
    assert torch.equal(tuned.bias, plain.bias)


@pytest.mark.slow
def test_samples_of_few_persons_in_order_keep_the_soliton() -> None:
    persons = _drawn(8, 40, seed=5).repeat_interleave(20, dim=0)
    auxiliary = persons + _drawn(160, 40, seed=6)
    plain = _shape(SolitonData(auxiliary), 240, 40, 160)
    assert torch.equal(_shape(Tuned(auxiliary), 240, 40, 160).bias, plain.bias)
    mixed = auxiliary[np.random.default_rng(0).permutation(160)]
    plain = _shape(SolitonData(mixed), 240, 40, 160)
    assert not torch.equal(_shape(Tuned(mixed), 240, 40, 160).bias, plain.bias)


@pytest.mark.slow
def test_progress_is_reported_and_changes_nothing() -> None:
    auxiliary = _drawn(64, 20, seed=1)
    seen: list[tuple[int, int]] = []
    watched = Tuned(auxiliary, on_progress=lambda done, total: seen.append((done, total)))
    shaped = _shape(watched, 90, 20, 64)
    assert seen == [(i, GENERATIONS) for i in range(1, GENERATIONS + 1)]
    assert torch.equal(shaped.bias, _shape(Tuned(auxiliary), 90, 20, 64).bias)


@pytest.mark.parametrize("auxiliary_size", [40, 200])
@pytest.mark.slow
def test_other_amounts_of_auxiliary_data(auxiliary_size: int) -> None:
    layer = _shape(Tuned(_drawn(auxiliary_size, 20, seed=3)), 120, 20, batch_size=100)
    assert bool(layer.bias.isfinite().all())
    # However many there are, thresholds aim at shares of the batch.
    fires = _drawn(2000, 20, seed=4) @ layer.weight.T + layer.bias > 0
    assert 0 < float(fires.double().mean()) < 0.3


def test_rehearsed_degrees_vary_as_those_of_a_client_do() -> None:
    """Mean and variance of the degree that a threshold set for 10 of 200 samples meets."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 60))
    stage = Rehearsals(values, batch_size=200, tilts=[0.0] * 60, rng=rng)
    place = int(np.searchsorted(stage.degrees, 10))
    assert stage.degrees[place] == 10
    rehearsed = np.array([stage.felt(i)[place] for i in range(60)])
    met = []
    for _ in range(300):
        server, client = rng.normal(size=(2, 200))
        server.sort()
        met.append((client > (server[-10] + server[-11]) / 2).sum())
    assert rehearsed.mean() == pytest.approx(np.mean(met), rel=0.1)
    assert rehearsed.std() == pytest.approx(np.std(met), rel=0.2)


def test_a_tilt_moves_all_neurons_together() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 60))
    spread = {}
    for tilt in (0.0, 2.5):
        stage = Rehearsals(values, batch_size=200, tilts=[tilt] * 30, rng=rng)
        place = int(np.searchsorted(stage.degrees, 30))
        spread[tilt] = np.std([stage.felt(i)[place].mean() for i in range(30)])
    assert spread[2.5] > 2 * spread[0.0]


def test_a_rehearsal_peels_the_auxiliary_batch() -> None:
    values = np.random.default_rng(0).normal(size=(50, 80)).astype(np.float32)
    rng = np.random.default_rng(1)
    stage = Rehearsals(values.astype(np.float64), batch_size=50, tilts=[0.7], rng=rng)
    places = rng.integers(0, len(stage.degrees), 80)
    falling = -np.sort(-values, axis=0)
    counts = stage.felt(0)[places, np.arange(80)]
    fires = [values[:, j] >= falling[count - 1, j] if count else np.zeros(50, bool)
             for j, count in enumerate(counts)]  # fmt: skip
    expected = float((peel_grid(np.array(fires)) > 0).double().mean())
    assert stage.reached(places, [0])[0] == expected


def test_the_search_finds_degrees_for_a_crowded_batch() -> None:
    rng = np.random.default_rng(0)
    stage = Rehearsals(_drawn(128, 30, 0).numpy() @ rng.normal(size=(30, 200)),
                       batch_size=128, tilts=[0.7] * 12, rng=rng)  # fmt: skip
    law = find_law(stage, 128, rng=rng, rehearsals=8, generations=6)
    assert law.sum() == pytest.approx(1)
    assert (law >= 0).all()
    found = rng.permutation(spread_evenly(law, 200, rng))
    lone = np.zeros(200, dtype=np.int64)  # every neuron at degree 1: many isolate the same
    assert stage.reached(found, range(8, 12)).mean() > stage.reached(lone, range(8, 12)).mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "fashion_mnist", "svhn"])
def test_real_batches_of_512_are_read_whole(name: str, data_dir: Path) -> None:
    data = load(name, data_dir=data_dir)
    batch = draw_batch(data, 512, shuffle=True, rng=np.random.default_rng([0, 1]))
    layer = _shape(Tuned(batch.auxiliary), 1000, data.features, 512)
    assert _bound(layer, batch.x) > 0.97
