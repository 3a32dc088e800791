"""What the certificate says beside yes and no: chances, doubts, and what it measures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradpeel.decoder.candidates import Candidates, gather
from gradpeel.decoder.certificate import Verdicts, _measure_c, _measure_v, certify
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulation import Probe, simulate
from gradpeel.decoder.structure import Structure
from support import SmallRound, make_round
from truth import Truth

SEEDS = pytest.mark.parametrize("seed", range(4))


class Stage:
    """The first round of a cascade: its candidates, and the samples behind those that are real."""

    def __init__(self, round_: SmallRound, *, use_next: bool = True) -> None:
        self.truth = Truth.of(round_)
        self.residual = Residual(self.truth.target, round_.update, use_next=use_next)
        neurons, width = self.residual.rows.shape
        spread = torch.full((neurons,), self.residual.spread, dtype=torch.float64)
        self.probe = Probe(round_.update.share, spread)
        self.structure = Structure(self.residual.sent, round_.update.batch_size)
        everywhere = torch.ones(neurons, dtype=torch.bool)
        self.candidates = gather(self.residual, everywhere, torch.eye(width).double()[0])
        degrees = round_.exposure.degrees[self.candidates.neurons]
        self.genuine = (degrees == 1).nonzero()[:, 0]
        self.who = round_.exposure.grid[self.candidates.neurons].int().argmax(1)
        pooled = torch.bincount(self.candidates.pairs[0], minlength=len(self.candidates))
        self.lonely = self.genuine[pooled[self.genuine] == 1]
        self.pooled = self.genuine[pooled[self.genuine] > 1]

    def judge(self, candidates: Candidates | None = None) -> Verdicts:
        return certify(
            self.candidates if candidates is None else candidates,
            self.residual,
            self.truth.target.tail,
            self.probe,
            self.structure,
        )


@SEEDS
def test_the_chance_is_that_of_the_equations_for_every_label_tried(seed: int) -> None:
    stage = Stage(make_round(classes=5, batch=5, seed=seed), use_next=False)
    verdicts = stage.judge()
    resolution = torch.finfo(torch.float64).eps
    luck = (2 * verdicts.mismatch).clamp(min=resolution)
    assert len(stage.lonely)
    assert len(stage.pooled)
    z = stage.candidates.pre_activations
    simulated = simulate(stage.truth.target.tail, z.clamp(min=0), verdicts.labels, stage.probe)
    # An equation that does not respond to the candidate would hold for anything.
    telling = simulated.response.clamp(max=1.0)
    expected = 5 * luck / telling
    torch.testing.assert_close(verdicts.chance[stage.lonely], expected[stage.lonely])
    # Each further neuron that isolates the sample is one more equation.
    for i in stage.pooled.tolist():
        count = len(stage.candidates.isolating(i))
        assert int(verdicts.equations[i]) == count
        assert 5 * resolution**count <= verdicts.chance[i] * 1.001
        assert verdicts.chance[i] <= 5 * luck[i] ** count / telling[i] * 1.001


@SEEDS
def test_a_neuron_at_the_kink_speaks_neither_for_nor_against(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    silent = int((~stage.truth.z.gt(0).any(0)).nonzero()[0])
    assert bool(stage.residual.quiet[silent])
    i = int(stage.genuine[0])
    z = stage.candidates.pre_activations.clone()
    z[i, silent] = 1e-15 * stage.residual.spread
    verdicts = stage.judge(replace(stage.candidates, pre_activations=z))
    # Within its error of zero it may fire or not, and that nothing is left there is no surprise.
    assert bool(verdicts.accepted[i])
    # What would be left if it did not fire after all is kept as an error.
    kink = verdicts.peeled.kink[i]
    assert kink.nonzero()[:, 0].tolist() == [silent]
    torch.testing.assert_close(kink[silent], verdicts.peeled.sensitivities[i, silent])
    assert not bool(stage.judge().peeled.kink[i].any())


@SEEDS
def test_next_sensitivities_are_measured_where_that_is_more_exact(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    v = stage.truth.v[stage.who]
    activations = stage.candidates.pre_activations.clamp(min=0.0)
    error = torch.full((len(stage.candidates),), 1e-15, dtype=torch.float64)
    arguments = stage.candidates, stage.residual, activations
    wrong = v * 1.1
    endless, nothing = torch.full_like(error, torch.inf), torch.zeros_like(error)
    measured, off = _measure_v(*arguments, wrong, error=error, computed=endless)
    real = stage.genuine
    torch.testing.assert_close(measured[real], v[real], rtol=1e-9, atol=1e-12)
    gap = (measured - v).abs().amax(1) / v.abs().amax(1)
    assert bool((gap[real] <= 8 * off[real]).all())
    assert bool((off[real] < 1e-10).all())
    computed, off = _measure_v(*arguments, wrong, error=error, computed=nothing)
    assert torch.equal(computed, wrong)
    assert torch.equal(off, nothing)


def test_every_neuron_that_isolates_a_sample_helps_to_measure_it() -> None:
    stage = Stage(make_round(batch=4))
    activations = stage.candidates.pre_activations.clamp(min=0.0)
    v = stage.truth.v[stage.who]
    error = torch.full((len(stage.candidates),), 1e-15, dtype=torch.float64)
    endless = torch.full_like(error, torch.inf)
    assert len(stage.pooled)
    row, column = stage.candidates.pairs
    alone = column == stage.candidates.neurons[row]
    single = replace(stage.candidates, pairs=(row[alone], column[alone]))
    all_of_them, one = (
        _measure_v(some, stage.residual, activations, v, error=error, computed=endless)[1]
        for some in (stage.candidates, single)
    )
    assert bool((all_of_them[stage.pooled] < one[stage.pooled]).all())
    assert torch.equal(all_of_them[stage.lonely], one[stage.lonely])


@SEEDS
def test_sensitivities_are_measured_where_that_is_more_exact(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    c = stage.truth.c[stage.who] * 1.1
    row, column = stage.candidates.pairs
    endless = torch.full((len(c),), torch.inf, dtype=torch.float64)
    measured = _measure_c(stage.candidates, stage.residual, c, endless)
    assert torch.equal(measured[row, column], stage.residual.bias[column])
    elsewhere = torch.ones_like(c, dtype=torch.bool)
    elsewhere[row, column] = False
    assert torch.equal(measured[elsewhere], c[elsewhere])
    assert torch.equal(_measure_c(stage.candidates, stage.residual, c, 0 * endless.nan_to_num()), c)


@SEEDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_to_be_subtracted_is_as_exact_as_it_says(seed: int, dtype: torch.dtype) -> None:
    stage = Stage(make_round(seed=seed, dtype=dtype))
    verdicts = stage.judge()
    accepted = verdicts.accepted.nonzero()[:, 0]
    assert len(accepted)
    peeled = verdicts.peeled.pick(accepted)
    who = stage.who[accepted]
    exact = stage.truth.peeled(stage.residual).pick(who)
    off = (peeled.coordinates - exact.coordinates).square().mean(1).sqrt() / stage.residual.scale
    assert bool((off <= 32 * peeled.sample_error).all())
    size = exact.sensitivities.square().mean(1).sqrt()
    off = (peeled.sensitivities - exact.sensitivities).square().mean(1).sqrt() / size
    assert bool((off <= 32 * peeled.sensitivity_error).all())
    assert float(peeled.sample_error.max()) < 1e5 * torch.finfo(dtype).eps
