"""Samples that fire exactly alike are not certified by the structure alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradpeel.decoder import peel
from gradpeel.decoder.alike import fire_alike
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.residual import Residual
from support import make_round, round_of, truths_of
from truth import Truth


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_mixtures_of_samples_that_fire_alike_do_not_come_back(seed: int) -> None:
    # One picture in two exposures: each neuron that both fire hands out another mixture of them.
    round_ = make_round(60, 400, 8, 5, seed=seed)
    with torch.no_grad():
        round_.model.get_parameter("0.bias").zero_()
    x = round_.x - 0.5
    x[1] = 0.4 * x[0] + 1e-5 * torch.linspace(-1, 1, 60)
    alike = round_of(round_.model, x, round_.y)
    found = truths_of(peel(alike.model, alike.update, loss=None).samples, x)
    assert sorted(found) == [2, 3, 4, 5, 6, 7]


def test_who_fires_alike() -> None:
    round_ = make_round(neurons=100)
    residual = Residual(Truth.of(round_).target, round_.update)
    everybody = Truth.of(round_).peeled(residual, error=1e-12)
    some, rest = everybody.pick(torch.arange(3)), everybody.pick(torch.arange(3, 8))
    alike = fire_alike(rest, some, residual.scale)
    assert not bool(alike.new.any())
    assert not bool(alike.known.any())
    # The same sample again is no other one,
    again = replace(some, coordinates=some.coordinates * (1 + 1e-6))
    assert not bool(fire_alike(again, some, residual.scale).known.any())
    # nor one that is as far from it as the error of either,
    vague = replace(
        again, coordinates=some.coordinates * 1.01, sample_error=some.sample_error + 1e-2
    )
    for one, other in ((vague, some), (some, vague)):
        alike = fire_alike(one, other, residual.scale)
        assert not bool(alike.new.any())
        assert not bool(alike.known.any())
    # but another one with its firing pattern is.
    other = replace(some, coordinates=some.coordinates.roll(1, 0)).pick(torch.tensor([0, 2]))
    alike = fire_alike(Peeled.joined([rest, other]), some, residual.scale)
    assert alike.new.tolist() == [False] * 5 + [True, True]
    assert alike.known.tolist() == [True, False, True]
