"""Laws of the decoder's arithmetic: merging, against comparing all pairs, and the noise floor."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.decoder.candidates import _merge
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.noise_floor import NoiseFloor, noise_floor
from gradpeel.noise import with_noise
from gradpeel.target import split
from gradpeel.update import Update
from support import SmallRound, make_model, make_round, round_of


def unit(width: int, seed: int = 0) -> Tensor:
    direction = torch.randn(width, generator=torch.Generator().manual_seed(seed)).double()
    return torch.nn.functional.normalize(direction, dim=0)


def merge_slowly(coordinates: Tensor, error: Tensor) -> list[int]:
    """For each row the first before it that is as near as their errors allow, or itself.

    One that is much vaguer than another does not stand back for it.
    """
    lead: list[int] = []
    for i, row in enumerate(coordinates):
        near = (
            j
            for j in range(i)
            if lead[j] == j
            and float(error[i]) <= LIMITS.merge * float(error[j])
            and float((row - coordinates[j]).square().mean().sqrt())
            <= LIMITS.merge * float(error[i] + error[j])
        )
        lead.append(next(near, i))
    return lead


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors around a few centres, each with its own error; clearest first; and a direction."""
    width, centres = draw(st.integers(2, 30)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    who = torch.tensor(draw(st.lists(st.integers(0, centres - 1), min_size=1, max_size=25)))
    middle = torch.randn(centres, width, generator=generator, dtype=torch.float64)
    exponent = torch.randint(-14, -6, (len(who),), generator=generator)
    error = (10.0 ** exponent.double()).sort().values
    noise = torch.randn(len(who), width, generator=generator, dtype=torch.float64)
    return middle[who] + error[:, None] * noise, error, unit(width, draw(st.integers(0, 1000)))


def merge(coordinates: Tensor, error: Tensor, direction: Tensor) -> Tensor:
    """Merge vectors that are there."""

    def apart(first: Tensor, second: Tensor) -> Tensor:
        return (coordinates[first] - coordinates[second]).square().mean(1).sqrt()

    return _merge(coordinates @ direction, error, apart)


@settings(max_examples=200)
@given(crowds())
@pytest.mark.slow
def test_merging_equals_comparing_all_pairs(crowd: tuple[Tensor, Tensor, Tensor]) -> None:
    coordinates, error, direction = crowd
    assert merge(coordinates, error, direction).tolist() == merge_slowly(coordinates, error)


@settings(max_examples=60)
@given(crowds(), st.data())
def test_vectors_that_only_look_alike_along_the_direction_are_kept_apart(
    crowd: tuple[Tensor, Tensor, Tensor], data: st.DataObject
) -> None:
    coordinates, error, direction = crowd
    # Another vector with the very same key: it differs across the direction only.
    across = unit(len(direction), seed=77)
    across = across - direction * (direction @ across)
    assume(float(across.norm()) > 1e-3)  # in two dimensions there are few
    twin = coordinates[0] + across / across.norm() * data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    coordinates = torch.cat([coordinates, twin[None]])
    error = torch.cat([error, error[-1:]])
    lead = merge(coordinates, error, direction)
    assert int(lead[-1]) == len(lead) - 1
    for i, j in enumerate(lead.tolist()):
        assert j <= i
        assert lead[j] == j
        gap = (coordinates[i] - coordinates[j]).square().mean().sqrt()
        assert gap <= LIMITS.merge * (error[i] + error[j])


def test_how_near_is_near() -> None:
    error = torch.tensor([1e-9, 3e-9], dtype=torch.float64)
    base = torch.ones(2, 50, dtype=torch.float64)
    for factor, lead in ((0.9, [0, 0]), (1.1, [0, 1])):
        shifted = base.clone()
        shifted[1] += factor * LIMITS.merge * 4e-9
        assert merge(shifted, error, unit(50)).tolist() == lead


def test_a_vague_one_does_not_stand_back_for_a_clear_one() -> None:
    # It agrees with anything, and the clear one may be a mixture.
    same = torch.ones(2, 50, dtype=torch.float64)
    for factor, lead in ((0.9, [0, 0]), (1.1, [0, 1])):
        error = torch.tensor([1e-9, factor * LIMITS.merge * 1e-9], dtype=torch.float64)
        assert merge(same, error, unit(50)).tolist() == lead


def test_merging_nothing_and_one() -> None:
    none = torch.zeros(0, 3, dtype=torch.float64)
    assert merge(none, none[:, 0], unit(3)).tolist() == []
    assert merge(torch.ones(1, 3).double(), torch.ones(1).double(), unit(3)).tolist() == [0]


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
@pytest.mark.slow
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
