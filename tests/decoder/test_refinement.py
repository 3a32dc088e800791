"""Refinement: inexact samples are put back to the resolution of the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gradpeel.decoder.backward import Backward
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.refinement import Refined, refine
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.structure import Structure
from gradpeel.noise import with_noise
from support import SmallRound, make_round, round_of
from truth import Truth

BOTH_SPACES = pytest.mark.parametrize("features", [12, 220], ids=["input space", "neuron space"])
HOLDS = 3.0
"""A true error may be this many times the stated one."""
FLOOR = 1e-13
"""Errors this small are nobody's concern."""


class Stage:
    """A round, all or some of whose samples are known, not too well."""

    def __init__(
        self, round_: SmallRound, known: list[int], *, error: float, off: float | None = None
    ) -> None:
        """Know samples up to `error` and their sensitivities up to `off` (the same, if None)."""
        self.round = round_
        self.truth = Truth.of(round_)
        self.residual = Residual(self.truth.target, round_.update)
        self.known = torch.tensor(known)
        peeled = self.truth.blurred(self.residual, error)
        if off is not None:
            exact = self.truth.peeled(self.residual)
            peeled = replace(
                peeled,
                sensitivities=exact.sensitivities,
                next_sensitivities=exact.next_sensitivities,
                sensitivity_error=torch.full_like(peeled.sensitivity_error, off),
            )
        # Each was read where it stands out most.
        share = self.truth.c.abs() / self.truth.c.abs().sum(0).clamp(min=1e-300)
        self.sources = share[self.known].argmax(1)
        self.enter(peeled.pick(self.known))

    def enter(self, peeled: Peeled) -> None:
        """Let these be the samples that are known."""
        self.peeled = peeled
        self.residual.restore()
        self.residual.subtract(peeled)

    @property
    def layer(self) -> nn.Linear | None:
        return self.truth.target.tail.next_layer

    @property
    def backward(self) -> Backward:
        signs = torch.where(torch.arange(len(self.residual.bias)) % 2 == 0, 1.0, -1.0).double()
        return self.truth.backward(self.round, signs * self.residual.spread)

    def refined(self, *, simulating: bool = True) -> Refined | None:
        return refine(
            self.peeled,
            self.sources,
            self.residual,
            backward=self.backward if simulating else None,
            layer=self.layer,
            structure=Structure(self.residual.sent, self.round.update.batch_size),
        )

    def surely_refined(self, *, simulating: bool = True) -> Refined:
        refined = self.refined(simulating=simulating)
        assert refined is not None
        return refined

    def off(self, peeled: Peeled) -> Tensor:
        """(n,) how far samples are from the true ones, relative to the typical size of an entry."""
        exact = self.truth.peeled(self.residual).coordinates[self.known]
        return (peeled.coordinates - exact).square().mean(1).sqrt() / self.residual.scale

    def holds(self, peeled: Peeled) -> Tensor:
        """(n,) whether samples are as exact as they say."""
        return self.off(peeled) <= (HOLDS * peeled.sample_error).clamp(min=FLOOR)

    def off_in_sensitivity(self, peeled: Peeled) -> Tensor:
        """(n,) how far sensitivities are from the true ones, relative to the typical one."""
        exact = self.truth.c[self.known]
        gap = (peeled.sensitivities - exact).square().sum(1)
        return (gap / exact.square().sum(1)).sqrt()


EVERYBODY = list(range(8))


@BOTH_SPACES
@pytest.mark.parametrize("error", [1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("seed", range(3))
def test_samples_are_put_back_to_the_resolution_of_the_update(
    features: int, error: float, seed: int
) -> None:
    round_ = make_round(features=features, neurons=100, batch=8, seed=seed)
    stage = Stage(round_, EVERYBODY, error=error, off=1e-15)
    assert float(stage.off(stage.peeled).min()) > 0.3 * error
    refined = stage.surely_refined()
    assert bool(refined.better.all())
    peeled = refined.peeled
    assert float(stage.off(peeled).max()) < 1e-12
    # It knows how exact it is: no less than it says, and not much more.
    assert bool(stage.holds(peeled).all())
    assert float(peeled.sample_error.max()) < 1e-11
    assert float(stage.off_in_sensitivity(peeled).max()) < 1e-11
    # The same fit gives the samples in any coordinates.
    sent = round_.update.gradients
    rows = refined.fit.solve(torch.cat([sent["0.weight"], sent["0.bias"][:, None]], 1))
    torch.testing.assert_close(rows[:, :-1] / rows[:, -1:], round_.x, rtol=0, atol=1e-11)


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("simulating", [True, False])
def test_inexact_sensitivities_are_no_obstacle(
    features: int, seed: int, *, simulating: bool
) -> None:
    # Where samples are silent their sensitivities are zero: that determines the rest of them.
    round_ = make_round(features=features, neurons=200, batch=8, seed=seed)
    stage = Stage(round_, EVERYBODY, error=1e-6)
    assert float(stage.off_in_sensitivity(stage.peeled).min()) > 1e-7
    refined = stage.surely_refined(simulating=simulating)
    assert float(stage.off(refined.peeled).max()) < 1e-9
    assert float(stage.off_in_sensitivity(refined.peeled).max()) < 1e-9
    assert bool(stage.holds(refined.peeled).all())


@BOTH_SPACES
def test_afterwards_the_residual_is_exact_again(features: int) -> None:
    round_ = make_round(features=features, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-5, off=1e-15)
    vague = stage.residual.row_error.clone()
    refined = stage.surely_refined()
    stage.residual.rebuild(
        refined.peeled, bias_error=refined.bias_error, row_error=refined.row_error
    )
    touched = round_.exposure.grid.any(1)
    assert bool(stage.residual.quiet.all())
    assert bool((stage.residual.row_error[touched] < 1e-3 * vague[touched]).all())


@BOTH_SPACES
@pytest.mark.parametrize("left", [[5, 6, 7], [7], [2, 3]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_left_is_known_as_exactly_as_it_says(
    features: int, left: list[int], dtype: torch.dtype
) -> None:
    ratios = []
    for seed in range(5):
        round_ = make_round(features=features, neurons=100, batch=8, seed=seed, dtype=dtype)
        known = [i for i in EVERYBODY if i not in left]
        stage = Stage(round_, known, error=1e-4)
        refined = stage.refined()
        assert refined is not None
        residual = stage.residual
        residual.rebuild(refined.peeled, bias_error=refined.bias_error, row_error=refined.row_error)
        rest = stage.truth.peeled(residual).pick(torch.tensor(left))
        gap = residual.bias - rest.sensitivities.sum(0)
        rows = residual.rows - rest.sensitivities.T @ rest.coordinates
        off = torch.maximum(gap.abs(), rows.square().mean(1).sqrt() / residual.scale)
        ratios.append((off / residual.row_error)[residual.sent.row_error > 0])
    ratio = torch.cat(ratios)
    assert float((ratio <= HOLDS).double().mean()) > 0.97
    assert float(ratio.max()) < 32.0


@BOTH_SPACES
def test_those_who_are_not_known_yet_are_no_obstacle(features: int) -> None:
    # Neurons that somebody else fires are not explained, and count for nothing.
    round_ = make_round(features=features, neurons=100, batch=8, seed=2)
    stage = Stage(round_, [0, 1, 2, 3, 4], error=1e-6, off=1e-15)
    assert not bool(stage.residual.quiet.all())
    refined = stage.surely_refined()
    assert bool(refined.better.any())
    assert float(stage.off(refined.peeled)[refined.better].max()) < 1e-11
    others = round_.exposure.grid[:, 5:].any(1)
    asked = torch.zeros(100, dtype=torch.bool)
    asked[refined.fit.equations] = True
    # Where a sample was read there is a look all the same; what does not belong is found.
    assert not bool((others & asked & ~refined.fit.outliers).any())
    # A sample that gains nothing stays as it was.
    kept = ~refined.better
    assert torch.equal(refined.peeled.coordinates[kept], stage.peeled.coordinates[kept])
    assert torch.equal(refined.peeled.sample_error[kept], stage.peeled.sample_error[kept])


@BOTH_SPACES
@pytest.mark.parametrize("trace", [1e-13, 1e-12, 1e-8, 1e-3])
@pytest.mark.parametrize("simulating", [True, False])
def test_neurons_that_only_look_explained_spoil_nothing(
    features: int, trace: float, *, simulating: bool
) -> None:
    round_ = make_round(features=features, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    # As if somebody too faint to be seen fired there: far above the rounding, even if it is far
    # below the error.
    loudest = stage.residual.sent.bias.abs().argsort(descending=True)
    some = loudest[~torch.isin(loudest, stage.sources)][:5]
    stage.residual.sent.bias[some] *= 1 + trace
    stage.residual.sent.rows[some] *= 1 - trace
    stage.enter(stage.peeled)
    refined = stage.surely_refined(simulating=simulating)
    peeled = refined.peeled
    assert float(stage.off(peeled).max()) < 1e-11
    assert bool(stage.holds(peeled).all())


@BOTH_SPACES
def test_a_fit_that_contradicts_what_was_read_is_not_believed(features: int) -> None:
    round_ = make_round(features=features, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-9, off=1e-15)
    # Somebody unknown, too faint to be seen, fires wherever sample 3 does and cancels in the bias.
    fired = round_.exposure.grid[:, 3]
    stranger = stage.residual.scale * torch.ones(stage.residual.rows.shape[1]).double()
    stage.residual.sent.rows[fired] += 1e-5 * stage.truth.c[3, fired, None] * stranger
    refined = stage.refined()
    peeled = stage.peeled if refined is None else refined.peeled
    assert bool(stage.holds(peeled).all())
    if refined is not None:
        assert not bool(refined.better[3])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_false_sample_does_not_get_better(seed: int, dtype: torch.dtype) -> None:
    round_ = make_round(features=40, neurons=120, batch=8, seed=seed, dtype=dtype)
    stage = Stage(round_, EVERYBODY, error=1e-5)
    # Half of sample 0 and half of sample 1 in the place of sample 0.
    mixed = SmallRound(
        round_.model, 0.5 * (round_.x + round_.x.roll(-1, 0)), round_.y, round_.update
    )
    false = Truth.of(mixed).peeled(stage.residual, error=1e-5).pick(torch.tensor([0]))
    others = stage.peeled.pick(torch.arange(1, 8))
    stage.enter(Peeled.joined([false, others]))
    refined = stage.refined()
    if refined is None:
        return
    assert not bool(refined.better[0])
    # It is not confirmed more often than the others are.
    assert refined.confirmations[0] < refined.confirmations[1:].max()
    # The others are no worse for it than they say.
    assert bool(stage.holds(refined.peeled)[1:].all())


@BOTH_SPACES
@pytest.mark.parametrize("error", [1e-5, 1e-3])
@pytest.mark.parametrize("simulating", [True, False])
def test_in_float32_errors_are_what_they_are_said_to_be(
    features: int, error: float, *, simulating: bool
) -> None:
    ratios = []
    for seed in range(10):
        round_ = make_round(features, 100, 8, seed=seed, dtype=torch.float32)
        stage = Stage(round_, EVERYBODY, error=error)
        peeled = stage.surely_refined(simulating=simulating).peeled
        assert bool((peeled.sample_error <= stage.peeled.sample_error).all())
        assert float(peeled.sample_error.median()) < 1e-5
        off = stage.off_in_sensitivity(peeled)
        assert bool((off <= 32 * peeled.sensitivity_error).all())
        ratios.append(stage.off(peeled) / peeled.sample_error)
    ratio = torch.cat(ratios)
    # Measured sensitivities are all off the same way, which the fit does not know of.
    assert float((ratio <= HOLDS).double().mean()) >= (1.0 if simulating else 0.95)
    assert float(ratio.max()) < 10.0


@BOTH_SPACES
@pytest.mark.parametrize("sigma", [1e-6, 1e-4])
def test_noise_is_averaged_out_as_far_as_it_goes(features: int, sigma: float) -> None:
    for seed in range(3):
        round_ = make_round(features=features, neurons=200, batch=5, seed=seed)
        update = with_noise(round_.update, sigma, seed=seed)
        stage = Stage(
            SmallRound(round_.model, round_.x, round_.y, update), [0, 1, 2, 3, 4], error=10 * sigma
        )
        peeled = stage.surely_refined().peeled
        assert bool(stage.holds(peeled).all())
        assert float(stage.off(peeled).median()) < 3 * sigma


def test_none_where_the_explained_neurons_do_not_determine_the_samples() -> None:
    # With fewer neurons than samples there are not enough equations.
    few = make_round(features=12, neurons=6, batch=8)
    assert Stage(few, EVERYBODY, error=1e-6, off=1e-15).refined() is None


def test_nothing_is_lost_where_nothing_is_gained() -> None:
    round_ = make_round(features=12, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=0.0, off=0.0)
    refined = stage.surely_refined()
    assert not bool(refined.better.any())
    assert torch.equal(refined.peeled.coordinates, stage.peeled.coordinates)
    assert torch.equal(refined.peeled.sample_error, stage.peeled.sample_error)


def test_a_neuron_at_the_kink_is_not_trusted() -> None:
    round_ = make_round(features=12, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    # A sample that hardly fires there, or not at all: its sensitivity is wrong by all of it.
    z = stage.residual.pre_activations(stage.peeled.coordinates)
    who = 0
    near = int(z[who].abs().argmin())
    shift = torch.zeros(100, dtype=torch.float64)
    shift[near] = -z[who, near] - 1e-7 * stage.residual.spread
    bias = stage.truth.target.bias + shift
    model = round_.model
    with torch.no_grad():
        model.get_parameter("0.bias").copy_(bias)
    kinked = round_of(model, round_.x, round_.y)
    stage = Stage(kinked, EVERYBODY, error=1e-6)
    refined = stage.surely_refined()
    peeled = refined.peeled
    assert bool(stage.holds(peeled).all())
    assert float(stage.off(peeled).max()) < 1e-9
    # Once the sample is known better, there is no doubt any more.
    assert not bool(peeled.kink[who, near])


@pytest.mark.parametrize("seed", range(4))
def test_confirmations_are_neurons_that_hold_although_nobody_needs_them(seed: int) -> None:
    round_ = make_round(features=40, neurons=100, batch=8, seed=seed)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    refined = stage.surely_refined()
    fires = stage.truth.c[stage.known] != 0
    expected = (fires & refined.fit.surplus).sum(1)
    assert bool((refined.confirmations <= expected).all())
    assert bool((refined.confirmations > 0.5 * expected).all())
