"""Samples at a ReLU's kink: whether they fire is told by what that leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradpeel.decoder.kinks import tell_kinks
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.residual import Residual
from support import SmallRound, make_round
from truth import Truth

BOTH_SPACES = pytest.mark.parametrize("features", [12, 220], ids=["input space", "neuron space"])
ERROR = 1e-12


class Kink:
    """A round whose samples are all known but for whether one of them fires at one neuron."""

    def __init__(self, features: int, *, fires: bool, thought: bool, left: int | None) -> None:
        """Put sample 0 in doubt where it `fires` or not; leave sample `left` in the residual."""
        self.round: SmallRound = make_round(features=features, neurons=200, batch=8)
        truth = Truth.of(self.round)
        self.residual = Residual(truth.target, self.round.update)
        exact = truth.peeled(self.residual, error=ERROR)
        known = [i for i in range(8) if i != left]
        others = truth.z[1:] > 0
        alone = others.sum(0) == 1 if left is None else others[left - 1] & (others.sum(0) == 1)
        self.neuron = int((((truth.z[0] > 0) == fires) & alone).nonzero()[0])
        # Unmasked: what it would add if it fired.
        part = float(
            truth.backward(self.round).simulate(truth.z.relu(), truth.counts).c[0, self.neuron]
        )
        c, kink = exact.sensitivities.clone(), exact.kink.clone()
        c[0, self.neuron] = part if thought else 0.0
        kink[0, self.neuron] = part
        self.part = part
        self.peeled: Peeled = replace(exact, sensitivities=c, kink=kink).pick(torch.tensor(known))
        self.residual.subtract(self.peeled)

    def told(self, isolates: Tensor | None = None) -> Peeled | None:
        nobody = torch.zeros_like(self.residual.quiet) if isolates is None else isolates
        return tell_kinks(self.peeled, self.residual, lambda _, __: nobody)


@BOTH_SPACES
@pytest.mark.parametrize("fires", [True, False])
@pytest.mark.parametrize("thought", [True, False])
def test_what_leaves_nothing_is_what_happened(features: int, *, fires: bool, thought: bool) -> None:
    kink = Kink(features, fires=fires, thought=thought, left=None)
    assert float(kink.residual.bias_error[kink.neuron]) >= abs(kink.part)
    told = kink.told()
    assert told is not None
    assert float(told.told[0, kink.neuron]) == (1.0 if fires else -1.0)
    assert float(told.sensitivities[0, kink.neuron]) == (kink.part if fires else 0.0)
    assert not bool(told.kink.any())
    # The residual is put right, and known as well as without the doubt.
    residual = kink.residual
    assert bool(residual.quiet[kink.neuron])
    assert abs(float(residual.bias[kink.neuron])) < 1e-12 * abs(kink.part) + 1e-15
    assert float(residual.bias_error[kink.neuron]) < 1e-6 * abs(kink.part)
    # Nobody else is touched.
    others = torch.arange(len(told.told[0])) != kink.neuron
    assert torch.equal(told.sensitivities[:, others], kink.peeled.sensitivities[:, others])
    assert not bool(told.told[:, others].any())
    # Once is enough.
    assert tell_kinks(told, residual, lambda _, among: torch.zeros_like(among)) is None


@BOTH_SPACES
@pytest.mark.parametrize("thought", [True, False])
def test_a_new_sample_tells_too(features: int, *, thought: bool) -> None:
    kink = Kink(features, fires=False, thought=thought, left=3)
    before = kink.residual.bias.clone()
    # Somebody is left there: neither leaves nothing, and nobody is handed out.
    assert kink.told() is None
    assert torch.equal(kink.residual.bias, before)
    wanted = before[kink.neuron] + (kink.part if thought else 0.0)

    def isolates(residual: Residual, among: Tensor) -> Tensor:
        # What is certified is the sample that is left, where the doubt is settled rightly.
        right = (residual.bias[kink.neuron] - wanted).abs() < 1e-12
        return among & right

    told = tell_kinks(kink.peeled, kink.residual, isolates)
    assert told is not None
    assert float(told.told[0, kink.neuron]) == -1.0
    torch.testing.assert_close(kink.residual.bias[kink.neuron], wanted)


def test_where_both_would_do_nothing_is_told() -> None:
    kink = Kink(12, fires=True, thought=True, left=None)
    before = kink.residual.bias.clone()
    everywhere = torch.ones_like(kink.residual.quiet)
    assert kink.told(everywhere) is None
    assert torch.equal(kink.residual.bias, before)


def test_two_doubts_at_one_neuron_are_left_alone() -> None:
    kink = Kink(12, fires=True, thought=False, left=None)
    doubt = kink.peeled.kink.clone()
    doubt[1, kink.neuron] = 1e-3
    kink.peeled = replace(kink.peeled, kink=doubt)
    assert kink.told() is None
