"""Samples that fire exactly alike are not certified by the structure alone."""

from __future__ import annotations

import pytest
import torch

from gradpeel.decoder import peel
from support import make_round, round_of, truths_of


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
@pytest.mark.slow
def test_mixtures_of_samples_that_fire_alike_do_not_come_back(seed: int) -> None:
    # One picture in two exposures: each neuron that both fire hands out another mixture of them.
    round_ = make_round(60, 400, 8, 5, seed=seed)
    with torch.no_grad():
        round_.model.get_parameter("0.bias").zero_()
    x = round_.x - 0.5
    x[1] = 0.4 * x[0] + 1e-5 * torch.linspace(-1, 1, 60)
    alike = round_of(round_.model, x, round_.y)
    found = truths_of(peel(alike.model, alike.update, knows_tail=False).samples, x)
    assert sorted(found) == [2, 3, 4, 5, 6, 7]
