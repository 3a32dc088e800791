"""How noisy an update is, told from the update itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.decoder.noise_floor import NoiseFloor, noise_floor
from gradpeel.noise import with_noise
from gradpeel.target import split
from gradpeel.update import Update
from support import SmallRound, make_model, make_round, round_of

ROUNDS = st.builds(
    make_round,
    features=st.integers(5, 90),
    neurons=st.integers(10, 90),
    batch=st.integers(1, 12),
    classes=st.integers(2, 10),
    hidden=st.sampled_from([(), (9,), (12, 7)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)


def floor_of(round_: SmallRound, update: Update | None = None) -> NoiseFloor:
    sent = (update or round_.update).gradients
    target = split(round_.model).to(torch.float64)
    name = target.tail.next_weight_name
    weight = sent["0.weight"]
    rows = weight[:, :0] if name is None else sent[name].T
    own = (target.weight * weight.double()).sum(1)
    return noise_floor(target, weight, sent["0.bias"], rows, own)


def spread(gradient: Tensor) -> float:
    return float(gradient.double().std(correction=0))


@settings(max_examples=80)
@given(ROUNDS)
def test_roundings_are_no_noise(round_: SmallRound) -> None:
    assert floor_of(round_) == NoiseFloor()


@pytest.mark.parametrize(
    ("dtype", "sigma"),
    [
        *((torch.float64, sigma) for sigma in (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)),
        *((torch.float32, sigma) for sigma in (1e-5, 1e-4, 1e-3, 1e-2)),
    ],
)
@pytest.mark.parametrize("features", [60, 200])
@pytest.mark.parametrize("hidden", [(), (30,)])
def test_noise_is_measured(
    sigma: float, dtype: torch.dtype, features: int, hidden: tuple[int, ...]
) -> None:
    for seed in range(3):
        round_ = make_round(features, 100, 8, 10, hidden, seed=seed, dtype=dtype)
        noisy = with_noise(round_.update, sigma, seed=seed)
        found = floor_of(round_, noisy)
        sent = round_.update.gradients
        assert sigma / 2 < found.relative < 2 * sigma
        assert found.weight == pytest.approx(sigma * spread(sent["0.weight"]), rel=0.5)
        assert sigma / 2 < found.bias / spread(sent["0.bias"]) < 2 * sigma
        assert sigma / 2 < found.next_weight / spread(sent["2.weight"]) < 2 * sigma


@pytest.mark.parametrize("seed", range(6))
def test_an_update_of_other_weights_is_mostly_noise(seed: int) -> None:
    round_ = make_round(60, 100, 8, seed=seed)
    other = SmallRound(make_model(60, 100, 4, seed=seed + 99), round_.x, round_.y, round_.update)
    found = floor_of(other)
    assert found.next_weight > 0.1 * spread(round_.update.gradients["2.weight"])


def test_noise_on_one_gradient_alone_is_noise() -> None:
    round_ = make_round(60, 100, 8)
    noisy = with_noise(round_.update, 1e-4).gradients
    for name in ("0.weight", "2.weight"):
        update = Update({**round_.update.gradients, name: noisy[name]}, 8)
        found = floor_of(round_, update)
        measured = {"0.weight": found.weight, "2.weight": found.next_weight}
        size = 1e-4 * spread(round_.update.gradients[name])
        assert measured[name] == pytest.approx(size, rel=0.6)


def test_nothing_is_known_without_a_next_layer() -> None:
    round_ = make_round(60, 100, 8)
    body = round_.model
    model = nn.Sequential(body[0], body[1], nn.LayerNorm(100).double(), body[2])
    noisy = with_noise(round_of(model, round_.x, round_.y).update, 1e-2)
    assert floor_of(SmallRound(model, round_.x, round_.y, noisy)) == NoiseFloor()


def test_an_update_of_zeros_has_no_noise() -> None:
    round_ = make_round(60, 100, 8)
    nothing = Update({name: 0 * g for name, g in round_.update.gradients.items()}, 8)
    assert floor_of(round_, nothing) == NoiseFloor()
