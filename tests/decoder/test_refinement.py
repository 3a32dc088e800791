"""Refinement: inexact samples are put back to the resolution of the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradpeel.client import local_update
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.refinement import Refined, refine
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulation import Probe
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import SLACK
from gradpeel.target import split
from support import SmallRound, make_model, make_round
from truth import Truth

BOTH_SPACES = pytest.mark.parametrize("features", [12, 220], ids=["input space", "neuron space"])


class Stage:
    """A round, all or some of whose samples are known, not too well."""

    def __init__(
        self, round_: SmallRound, known: list[int], *, error: float, off: float | None = None
    ) -> None:
        """Know samples up to `error` and their sensitivities up to `off` (the same, if None)."""
        self.round = round_
        self.truth = Truth.of(round_)
        self.residual = Residual(split(round_.model), round_.update)
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
        self.peeled = peeled.pick(self.known)
        self.residual.subtract(self.peeled)

    def refined(self) -> Refined | None:
        neurons = len(self.residual.bias)
        signs = torch.where(torch.arange(neurons) % 2 == 0, 1.0, -1.0).double()
        return refine(
            self.peeled,
            self.round.y[self.known],
            self.residual,
            self.truth.target.tail,
            probe=Probe(self.round.update.share, signs * self.residual.spread),
            structure=Structure(self.residual.sent, self.round.update.batch_size),
        )

    def off(self, peeled: Peeled) -> Tensor:
        """(n,) how far samples are from the true ones, relative to the typical size of an entry."""
        exact = self.truth.peeled(self.residual).coordinates[self.known]
        return (peeled.coordinates - exact).square().mean(1).sqrt() / self.residual.scale

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
    refined = stage.refined()
    assert refined is not None
    assert bool(refined.better.all())
    peeled = refined.peeled
    assert float(stage.off(peeled).max()) < 1e-12
    # It knows how exact it is: no less than it says, and not much more.
    assert bool((stage.off(peeled) <= SLACK * peeled.sample_error).all())
    assert float(peeled.sample_error.max()) < 1e-11
    assert float(stage.off_in_sensitivity(peeled).max()) < 1e-11
    # The same fit gives the samples in any coordinates.
    rows = refined.fit.solve(round_.update.gradients["0.weight"], round_.update.gradients["0.bias"])
    torch.testing.assert_close(rows, round_.x, rtol=0, atol=1e-11)


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(3))
def test_inexact_sensitivities_are_no_obstacle(features: int, seed: int) -> None:
    # Where samples are silent their sensitivities are zero: that determines the rest of them.
    round_ = make_round(features=features, neurons=200, batch=8, seed=seed)
    stage = Stage(round_, EVERYBODY, error=1e-6)
    assert float(stage.off_in_sensitivity(stage.peeled).min()) > 1e-7
    refined = stage.refined()
    assert refined is not None
    assert float(stage.off(refined.peeled).max()) < 1e-9
    assert float(stage.off_in_sensitivity(refined.peeled).max()) < 1e-9
    assert bool((stage.off(refined.peeled) <= SLACK * refined.peeled.sample_error).all())


@BOTH_SPACES
def test_afterwards_the_residual_is_exact_again(features: int) -> None:
    round_ = make_round(features=features, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-5, off=1e-15)
    vague = stage.residual.row_error.clone()
    refined = stage.refined()
    assert refined is not None
    stage.residual.restore()
    touched = stage.residual.subtract(refined.peeled)
    assert bool(stage.residual.quiet.all())
    assert bool((stage.residual.row_error[touched] < 1e-3 * vague[touched]).all())


@BOTH_SPACES
def test_those_who_are_not_known_yet_are_no_obstacle(features: int) -> None:
    # Neurons that somebody else fires are not explained, and not asked.
    round_ = make_round(features=features, neurons=100, batch=8, seed=2)
    stage = Stage(round_, [0, 1, 2, 3, 4], error=1e-6, off=1e-15)
    assert not bool(stage.residual.quiet.all())
    refined = stage.refined()
    assert refined is not None
    assert bool(refined.better.any())
    assert float(stage.off(refined.peeled)[refined.better].max()) < 1e-11
    others = round_.exposure.grid[:, 5:].any(1)
    assert not bool(others[refined.fit.explained].any())
    # A sample that gains nothing stays as it was.
    kept = ~refined.better
    assert torch.equal(refined.peeled.coordinates[kept], stage.peeled.coordinates[kept])
    assert torch.equal(refined.peeled.sample_error[kept], stage.peeled.sample_error[kept])


@BOTH_SPACES
@pytest.mark.parametrize("trace", [1e-13, 1e-12, 1e-8])
def test_a_neuron_that_only_looks_explained_is_left_out(features: int, trace: float) -> None:
    round_ = make_round(features=features, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    # As if somebody too faint to be seen fired there: far below the error, far above the rounding.
    loud = int(stage.residual.sent.bias.abs().argmax())
    stage.residual.sent.bias[loud] *= 1 + trace
    stage.residual.sent.rows[loud] *= 1 - trace
    refined = stage.refined()
    assert refined is not None
    assert loud not in refined.fit.explained
    assert float(stage.off(refined.peeled).max()) < 1e-12


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
    assert bool((stage.off(peeled) <= SLACK * peeled.sample_error).all())


def test_none_where_the_explained_neurons_do_not_determine_the_samples() -> None:
    # Everybody fires everywhere: with one sample unknown, no neuron is explained.
    model = make_model(12, 40, 4)
    with torch.no_grad():
        model.get_parameter("0.bias").add_(50.0)
    round_ = make_round(features=12, neurons=40, batch=8)
    crowded = SmallRound(model, round_.x, round_.y, local_update(model, round_.x, round_.y))
    assert Stage(crowded, EVERYBODY[:-1], error=1e-6, off=1e-15).refined() is None
    # With fewer neurons than samples there are not enough equations.
    few = make_round(features=12, neurons=6, batch=8)
    assert Stage(few, EVERYBODY, error=1e-6, off=1e-15).refined() is None


def test_none_where_one_sample_is_seen_by_no_explained_neuron() -> None:
    round_ = make_round(features=12, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    stage.residual.quiet &= ~round_.exposure.grid[:, 3]
    assert stage.refined() is None


def test_none_where_nothing_is_gained() -> None:
    round_ = make_round(features=12, neurons=100, batch=8)
    assert Stage(round_, EVERYBODY, error=1e-15, off=1e-15).refined() is None


def test_a_neuron_at_the_kink_is_not_asked() -> None:
    round_ = make_round(features=12, neurons=100, batch=8)
    stage = Stage(round_, EVERYBODY, error=1e-6, off=1e-15)
    kink = stage.peeled.kink.clone()
    fired = int(round_.exposure.grid.any(1).nonzero()[0])
    kink[0, fired] = 1e-3
    stage.peeled = replace(stage.peeled, kink=kink)
    refined = stage.refined()
    assert refined is not None
    assert fired not in refined.fit.explained
