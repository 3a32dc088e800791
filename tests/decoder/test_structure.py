"""The structure of an update: true sensitivities lie in its column space, others do not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.client import local_update
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.structure import LARGEST, Structure
from gradpeel.decoder.tolerances import CHANCE, SLACK
from gradpeel.noise import with_noise
from support import SmallRound, make_model, make_round, round_of
from truth import Truth

BOTH_SPACES = pytest.mark.parametrize("features", [30, 220], ids=["input space", "neuron space"])
SEEDS = pytest.mark.parametrize("seed", range(3))


def stage(
    round_: SmallRound, *, batch_size: int | None = None
) -> tuple[Truth, Residual, Structure]:
    truth = Truth.of(round_)
    residual = Residual(truth.target, round_.update)
    structure = Structure(residual.sent, batch_size)
    structure.watch((truth.z > 0).double().mean(0))
    return truth, residual, structure


def noise(like: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64)


def apart(c: Tensor, exact: Tensor) -> Tensor:
    """(n,) sine of the angle to the true sensitivities: a wrong scale does not count."""
    along = (c * exact).sum(1, keepdim=True) / exact.square().sum(1, keepdim=True)
    sine: Tensor = (c - along * exact).norm(dim=1) / c.norm(dim=1)
    return sine


@BOTH_SPACES
@SEEDS
@pytest.mark.parametrize("batch_size", [8, 11, None])
def test_true_sensitivities_lie_in_the_space(
    features: int, seed: int, batch_size: int | None
) -> None:
    round_ = make_round(features=features, neurons=300, batch=8, seed=seed)
    truth, _, structure = stage(round_, batch_size=batch_size)
    assert structure.tells
    distance, equations = structure.distance(truth.c)
    assert float(distance.max()) < 1e-11
    assert bool((structure.chance(distance, equations) <= CHANCE).all())
    assert bool((equations >= 10).all())
    # Whatever their scale.
    torch.testing.assert_close(structure.distance(-3 * truth.c)[1], equations)


@BOTH_SPACES
@SEEDS
def test_mixtures_do_not(features: int, seed: int) -> None:
    round_ = make_round(features=features, neurons=300, batch=8, seed=seed)
    truth, _, structure = stage(round_)
    # A mixture of two samples fires where it likes, and there it has its own sensitivities.
    mixed = SmallRound(
        round_.model, (0.6 * round_.x + 0.4 * round_.x.roll(1, 0)), round_.y, round_.update
    )
    for wrong in (
        Truth.of(mixed).c,
        noise(truth.c),
        truth.c + 0.1 * truth.c * noise(truth.c),  # near is not near enough
        truth.c.roll(1, 1),
    ):
        distance, equations = structure.distance(wrong)
        assert bool((distance > LARGEST).all())
        assert bool((structure.chance(distance, equations) == 1).all())


@BOTH_SPACES
def test_the_chance_grows_with_the_distance(features: int) -> None:
    truth, _, structure = stage(make_round(features=features, neurons=300, batch=8))
    worst = []
    for off in (0.0, 1e-9, 1e-6, 1e-4):
        distance, equations = structure.distance(truth.c * (1 + off * noise(truth.c)))
        # A random vector is at distance 1 or so: what is random in these is off.
        assert float(distance.max()) < 3 * off + 1e-11
        worst.append(float(structure.chance(distance, equations).max()))
    assert worst == sorted(worst)
    assert worst[-1] < CHANCE


@BOTH_SPACES
def test_distances_are_relative_to_those_of_random_vectors(features: int) -> None:
    truth, _, structure = stage(make_round(features=features, neurons=300, batch=8))
    masks = truth.c != 0
    for seed in range(20):
        distance, _ = structure.distance(masks * noise(truth.c, seed))
        assert bool(((distance > 0.5) & (distance < 2.0)).all())


@cache
def one_structure() -> Structure:
    return stage(make_round(features=60, neurons=300, batch=8))[2]


@given(st.floats(0.0, 2.0), st.floats(0.0, 500.0), st.floats(0.0, 500.0))
def test_what_a_distance_is_worth(distance: float, few: float, more: float) -> None:
    structure = one_structure()
    structure.watch(torch.full((2000,), 0.5))
    less, most = sorted((few, more))
    far = torch.tensor([distance], dtype=torch.float64)
    chance = [float(structure.chance(far, far.new_tensor([n]))) for n in (less, most)]
    assert 0 <= chance[1] <= chance[0] <= 1
    if distance > LARGEST or most == 0:
        assert chance == [1.0, 1.0]
    else:
        # Equations are not independent to the last one: 60 count at most.
        luck = (2 * distance) ** min(most, 60.0)
        assert chance[1] == pytest.approx(luck, rel=1e-6, abs=1e-215)


def test_it_is_worth_no_more_than_firing_patterns_differ() -> None:
    near, many = torch.zeros(1).double(), torch.full((1,), 200.0).double()
    structure = one_structure()
    structure.watch(torch.zeros(300))  # everybody fires the same neurons: so does any mixture
    assert float(structure.chance(near, many)) == 1.0
    share = torch.zeros(300)
    chances = []
    for coins in (0, 10, 40, 80, 160):
        share[:coins] = 0.5
        structure.watch(share)
        chances.append(float(structure.chance(near, many)))
    assert chances == sorted(chances, reverse=True)
    assert chances[1] > CHANCE > chances[-1]


@SEEDS
def test_evidence_is_counted_not_assumed(seed: int) -> None:
    # Hardly more live neurons than dimensions: all but a few of them say nothing.
    for neurons in (40, 60, 120):
        round_ = make_round(features=200, neurons=neurons, batch=8, seed=seed)
        truth, residual, structure = stage(round_, batch_size=8)
        spare = int((residual.sent.row_error > 0).sum()) - 8
        _, equations = structure.distance(truth.c)
        assert bool((equations <= max(spare, 0)).all())
        fires = (truth.c != 0).sum(1)
        assert bool((equations < fires).all())


@pytest.mark.parametrize("batch_size", [40, 16, None])
def test_where_there_is_no_structure_nothing_is_said(batch_size: int | None) -> None:
    # More samples than neurons, and no two neurons that say the same: the space is all there is.
    round_ = make_round(features=60, neurons=20, batch=40, classes=24)
    truth, residual, structure = stage(round_, batch_size=batch_size)
    live = residual.sent.row_error > 0
    assert int(torch.linalg.matrix_rank(truth.c[:, live])) == int(live.sum())
    assert not structure.tells
    assert structure.rank is None
    for c in (truth.c, noise(truth.c)):
        distance, equations = structure.distance(c)
        assert bool((structure.chance(distance, equations) == 1).all())
        assert not bool(equations.any())
    sharp, error, spare = structure.sharpen(truth.c, truth.z > 0)
    assert torch.equal(sharp, truth.c)
    assert bool(error.isinf().all())
    assert not bool(spare.any())


def test_more_samples_than_features_fill_the_space() -> None:
    round_ = make_round(features=10, neurons=100, batch=14)
    for batch_size in (14, None):
        assert not stage(round_, batch_size=batch_size)[2].tells


def test_a_bias_gradient_of_something_else_leaves_nothing_to_tell() -> None:
    # It is the sum of all sensitivities: it lies in the space as each of them does.
    round_ = make_round(features=60, neurons=300, batch=8)
    sent = stage(round_)[1].sent
    assert Structure(sent, 8).tells
    for bias in (sent.bias.roll(1), noise(sent.bias)):
        assert not Structure(replace(sent, bias=bias), 8).tells


def test_nobody_asks_nothing() -> None:
    truth, _, structure = stage(make_round(features=60, neurons=100, batch=8))
    nobody = truth.c[:0]
    assert [len(part) for part in structure.distance(nobody)] == [0, 0]
    assert [len(part) for part in structure.sharpen(nobody, nobody > 0)] == [0, 0, 0]
    assert not structure.asked
    assert structure.rank is None


@settings(max_examples=40)
@given(
    batch=st.integers(1, 20),
    copies=st.integers(0, 4),
    features=st.sampled_from([25, 60, 130]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 1000),
)
def test_the_rank_is_the_number_of_distinct_samples(
    batch: int, copies: int, features: int, dtype: torch.dtype, seed: int
) -> None:
    assume(batch + copies + 3 < features)  # the structure tells nothing of as many samples
    round_ = make_round(features, 100, batch, seed=seed, dtype=dtype)
    again = torch.arange(copies) % batch
    x, y = (torch.cat([part, part[again]]) for part in (round_.x, round_.y))
    more = round_of(round_.model, x, y)
    for batch_size in (None, batch + copies, batch + copies + 3):
        structure = stage(more, batch_size=batch_size)[2]
        assert structure.tells
        assert structure.rank == batch


def test_more_directions_than_are_looked_for_at_once() -> None:
    round_ = make_round(features=300, neurons=260, batch=150)
    truth, _, structure = stage(round_)
    assert structure.tells
    assert structure.rank == 150
    assert float(structure.distance(truth.c)[0].max()) < 1e-7


@pytest.mark.parametrize("sigma", [1e-8, 1e-6, 1e-4])
@SEEDS
def test_noise_is_no_sample(sigma: float, seed: int) -> None:
    round_ = make_round(features=120, neurons=100, batch=8, seed=seed)
    noisy = SmallRound(round_.model, round_.x, round_.y, with_noise(round_.update, sigma))
    truth, _, structure = stage(noisy)
    assert structure.tells
    assert structure.rank == 8
    distance, _ = structure.distance(truth.c)
    # No farther off than the noise is large.
    assert float(distance.max()) < 3 * sigma


@BOTH_SPACES
@SEEDS
@pytest.mark.parametrize("off", [1e-8, 1e-4, 1e-2])
def test_silent_neurons_make_sensitivities_exact(features: int, seed: int, off: float) -> None:
    truth, residual, structure = stage(
        make_round(features=features, neurons=300, batch=8, seed=seed)
    )
    blurred = truth.c * (1 + off * noise(truth.c))
    assert float(apart(blurred, truth.c).min()) > off / 10
    sharp, error, spare = structure.sharpen(blurred, truth.z > 0)
    assert float(apart(sharp, truth.c).max()) < 1e-11
    assert bool((apart(sharp, truth.c) <= SLACK * error).all())
    assert bool((sharp[truth.z <= 0] == 0).all())
    # They keep the scale that was known.
    torch.testing.assert_close((sharp * blurred).sum(1), sharp.square().sum(1))
    silent = ((truth.z <= 0) & (residual.sent.row_error > 0)).sum(1)
    assert spare.tolist() == (silent - 8).tolist()


@SEEDS
def test_one_neuron_is_enough_to_start_from(seed: int) -> None:
    # Nothing is known of a sample but where it fires, and its sensitivity at one neuron.
    truth, _, structure = stage(make_round(features=60, neurons=300, batch=8, seed=seed))
    start = torch.zeros_like(truth.c)
    neuron = truth.c.abs().argmax(1, keepdim=True)
    start.scatter_(1, neuron, truth.c.gather(1, neuron))
    sharp, error, _ = structure.sharpen(start, truth.z > 0)
    assert float(apart(sharp, truth.c).max()) < 1e-10
    assert float(error.max()) < 1e-9


def test_too_few_silent_neurons_are_no_help() -> None:
    truth, residual, structure = stage(make_round(features=60, neurons=300, batch=8))
    live = residual.sent.row_error > 0
    fires = truth.z > 0
    crowded = fires.clone()
    crowded[0, live.nonzero()[8:, 0]] = True  # 8 may be silent: as many as there are dimensions
    sharp, error, spare = structure.sharpen(truth.c, crowded)
    assert bool(error[0].isinf())
    assert spare[0] == 0
    assert torch.equal(sharp[0], truth.c[0])
    assert bool(error[1:].isfinite().all())


def test_a_wrong_mask_is_told() -> None:
    truth, _, structure = stage(make_round(features=60, neurons=300, batch=8))
    fires = truth.z > 0
    wrong = fires & fires.roll(1, 0)
    sharp, error, _ = structure.sharpen(truth.c, wrong)
    assert bool((apart(sharp, truth.c) > 0.01).all())
    assert bool((error > 0.01).all())


def test_a_sample_in_another_s_shadow_is_told() -> None:
    # Sample 1 fires only where sample 0 does: what vanishes where 0 is silent may be either's.
    model = make_model(30, 200, 4)
    with torch.no_grad():
        model.get_parameter("0.weight").abs_()
        model.get_parameter("0.bias").abs_().mul_(-4.0)
    x = make_round(features=30).x.clone()
    x[1] = 0.7 * x[0]
    y = make_round(features=30).y
    truth, _, structure = stage(SmallRound(model, x, y, local_update(model, x, y)))
    fires = truth.z > 0
    assert bool((fires[0] | ~fires[1]).all())
    assert 0 < int(fires[1].sum()) < int(fires[0].sum())
    sharp, error, _ = structure.sharpen(truth.c * (1 + 1e-6 * noise(truth.c)), fires)
    assert bool((apart(sharp, truth.c) <= SLACK * error).all())
    assert error[0] > 1e-3
