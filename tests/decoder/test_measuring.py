"""Sensitivities read off the residual, against the true ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradpeel.decoder.measuring import measure_c, measure_v, trespassers
from gradpeel.decoder.tolerances import SLACK
from support import make_round
from truth import FirstLook

SEEDS = pytest.mark.parametrize("seed", range(4))


@SEEDS
@pytest.mark.parametrize("hidden", [(), (9,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_next_sensitivities_are_measured_at_singletons(
    seed: int, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    look = FirstLook(make_round(hidden=hidden, seed=seed, dtype=dtype))
    activations = look.candidates.pre_activations.relu()
    measured, off = measure_v(look.candidates, look.residual, activations, look.candidates.error)
    real, v = look.genuine, look.truth.v[look.who]
    gap = (measured - v).abs().amax(1) / v.abs().amax(1)
    assert bool(real.any())
    assert bool((gap[real] <= 8 * off[real]).all())
    assert float(off[real].median()) < 1000 * torch.finfo(dtype).eps
    # A mixture's is none of its samples'.
    assert float(gap[~real].min()) > 1e-3


@SEEDS
def test_every_neuron_that_isolates_a_sample_helps_to_measure_it(seed: int) -> None:
    look = FirstLook(make_round(batch=4, seed=seed))
    activations = look.candidates.pre_activations.relu()
    assert bool(look.pooled.any())
    row, column = look.candidates.pairs
    alone = column == look.candidates.neurons[row]
    single = replace(look.candidates, pairs=(row[alone], column[alone]))
    everywhere, one = (
        measure_v(some, look.residual, activations, look.candidates.error)[1]
        for some in (look.candidates, single)
    )
    assert bool((everywhere[look.pooled] < one[look.pooled]).all())
    assert torch.equal(everywhere[look.lonely], one[look.lonely])


@SEEDS
def test_sensitivities_are_measured_where_that_is_more_exact(seed: int) -> None:
    look = FirstLook(make_round(seed=seed))
    c = look.truth.c[look.who] * 1.1
    row, column = look.candidates.pairs
    endless = torch.full((len(c),), torch.inf, dtype=torch.float64)
    measured = measure_c(look.candidates, look.residual, c, endless)
    assert torch.equal(measured[row, column], look.residual.bias[column])
    elsewhere = torch.ones_like(c, dtype=torch.bool)
    elsewhere[row, column] = False
    assert torch.equal(measured[elsewhere], c[elsewhere])
    assert torch.equal(measure_c(look.candidates, look.residual, c, torch.zeros(len(c))), c)


@SEEDS
def test_trespassers_have_sensitivity_where_nothing_is_left(seed: int) -> None:
    look = FirstLook(make_round(seed=seed))
    residual, c = look.residual, look.truth.c
    residual.subtract(look.truth.peeled(residual).pick(torch.arange(4)))
    quiet = residual.quiet
    # Who is left does not fire there; who is gone does, unless others fire at all those neurons.
    assert not bool(trespassers(residual, c[4:]).any())
    gone = (c[:4, quiet] != 0).any(1)
    assert bool(gone.any())
    assert trespassers(residual, c[:4]).tolist() == gone.tolist()
    # Up to the error there.
    where = int((quiet & (c[:4] != 0).any(0)).nonzero()[0])
    small = torch.zeros_like(c[:1])
    for factor, alien in ((0.9, False), (1.1, True)):
        small[0, where] = factor * SLACK * residual.bias_error[where]
        residual.bias[where] = 0.0
        assert bool(trespassers(residual, small)[0]) == alien
    # What is left there may be theirs.
    residual.bias[where] = small[0, where]
    assert not bool(trespassers(residual, small)[0])
