"""The structure of an update: true sensitivities lie in its column space, others do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradpeel.client import local_update
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import CHANCE, SLACK
from support import SmallRound, make_model, make_round
from truth import Truth

BOTH_SPACES = pytest.mark.parametrize("features", [30, 220], ids=["input space", "neuron space"])
SEEDS = pytest.mark.parametrize("seed", range(3))


def stage(round_: SmallRound) -> tuple[Truth, Residual, Structure]:
    truth = Truth.of(round_)
    residual = Residual(truth.target, round_.update)
    return truth, residual, Structure(residual.sent, len(round_.x))


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
def test_true_sensitivities_lie_in_the_space(features: int, seed: int) -> None:
    truth, _, structure = stage(make_round(features=features, neurons=200, batch=8, seed=seed))
    chance, equations = structure.chance(truth.c)
    assert structure.asked
    assert bool((chance <= CHANCE).all())
    assert bool((equations >= 10).all())
    # Whatever their scale.
    torch.testing.assert_close(structure.chance(-3 * truth.c)[1], equations)


@BOTH_SPACES
@SEEDS
def test_mixtures_do_not(features: int, seed: int) -> None:
    round_ = make_round(features=features, neurons=200, batch=8, seed=seed)
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
        chance, equations = structure.chance(wrong)
        assert bool((chance == 1).all())
        assert not bool(equations.any())


@BOTH_SPACES
def test_the_chance_grows_with_the_distance(features: int) -> None:
    truth, _, structure = stage(make_round(features=features, neurons=200, batch=8))
    worst = [
        float(structure.chance(truth.c * (1 + off * noise(truth.c)))[0].max())
        for off in (0.0, 1e-9, 1e-6, 1e-4)
    ]
    assert worst == sorted(worst)
    assert worst[0] < worst[-1] < CHANCE


@SEEDS
def test_evidence_is_counted_not_assumed(seed: int) -> None:
    # Hardly more live neurons than dimensions: all but a few of them say nothing.
    for neurons in (40, 60, 120):
        round_ = make_round(features=200, neurons=neurons, batch=8, seed=seed)
        truth, residual, structure = stage(round_)
        spare = int((residual.sent.error > 0).sum()) - (8 + 8)
        _, equations = structure.chance(truth.c)
        assert bool((equations <= max(spare, 0)).all())
        fires = (truth.c != 0).sum(1)
        assert bool((equations < fires).all())


def test_where_there_is_no_structure_nothing_is_said() -> None:
    # As many samples as neurons: everything lies in the space.
    truth, _, structure = stage(make_round(features=60, neurons=20, batch=16))
    for c in (truth.c, noise(truth.c)):
        chance, equations = structure.chance(c)
        assert bool((chance == 1).all())
        assert not bool(equations.any())
    sharp, error = structure.sharpen(truth.c, truth.z > 0)
    assert torch.equal(sharp, truth.c)
    assert bool(error.isinf().all())


def test_nobody_asks_nothing() -> None:
    truth, _, structure = stage(make_round(features=60, neurons=100, batch=8))
    nobody = truth.c[:0]
    assert [len(part) for part in structure.chance(nobody)] == [0, 0]
    assert [len(part) for part in structure.sharpen(nobody, nobody > 0)] == [0, 0]
    assert not structure.asked


@BOTH_SPACES
@SEEDS
@pytest.mark.parametrize("off", [1e-8, 1e-4, 1e-2])
def test_silent_neurons_make_sensitivities_exact(features: int, seed: int, off: float) -> None:
    truth, _, structure = stage(make_round(features=features, neurons=200, batch=8, seed=seed))
    blurred = truth.c * (1 + off * noise(truth.c))
    assert float(apart(blurred, truth.c).min()) > off / 10
    sharp, error = structure.sharpen(blurred, truth.z > 0)
    assert float(apart(sharp, truth.c).max()) < 1e-11
    assert bool((apart(sharp, truth.c) <= SLACK * error).all())
    assert bool((sharp[truth.z <= 0] == 0).all())
    # They keep the scale that was known.
    torch.testing.assert_close((sharp * blurred).sum(1), sharp.square().sum(1))


def test_too_few_silent_neurons_are_no_help() -> None:
    truth, residual, structure = stage(make_round(features=60, neurons=200, batch=8))
    live = residual.sent.error > 0
    fires = truth.z > 0
    crowded = fires.clone()
    crowded[0, live.nonzero()[16:, 0]] = True  # 16 may be silent: as many as there are dimensions
    sharp, error = structure.sharpen(truth.c, crowded)
    assert bool(error[0].isinf())
    assert torch.equal(sharp[0], truth.c[0])
    assert bool(error[1:].isfinite().all())


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
    sharp, error = structure.sharpen(truth.c * (1 + 1e-6 * noise(truth.c)), fires)
    assert bool((apart(sharp, truth.c) <= SLACK * error).all())
    assert error[0] > 1e-3
