"""Guarantees of the certificate and of the loop, one small test for each.

Every input is made so that a single guarantee stands between the decoder and something that it must
not do: `benchmarks.mutants` breaks the guarantees one at a time, and their tests must fail.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gradpeel.client import local_update
from gradpeel.decoder import Peeling, Stage, peel
from gradpeel.update import Update
from support import (
    SmallRound,
    make_batch,
    make_model,
    make_round,
    readable,
    recovered,
    round_of,
    truths_of,
)

TARGET = ("0.weight", "0.bias")


def gradients_of(update: Update) -> dict[str, Tensor]:
    """Copies of the gradients, to be tampered with."""
    return {name: gradient.clone() for name, gradient in update.gradients.items()}


def times(update: Update, neuron: int, factor: float) -> Update:
    """The update with the target's gradient at one neuron multiplied.

    The vector that the neuron hands out stays the same; its weight does not.
    """
    gradients = gradients_of(update)
    for name in TARGET:
        gradients[name][neuron] *= factor
    return replace(update, gradients=gradients)


def with_a_loner(own: int, *, neurons: int, batch: int) -> SmallRound:
    """A round whose first sample fires the first `own` neurons at most, and nobody else does.

    The first feature is 1 for that sample and 0 for the others: it opens these neurons, which
    their biases close otherwise, and closes the rest.
    """
    model = make_model(24, neurons, 4)
    x, y = make_batch(24, batch, 4)
    x[:, 0] = 0.0
    x[0, 0] = 1.0
    first = model[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.bias[:own] -= 49.0
        first.weight[:own, 0] = 50.0
        first.weight[own:, 0] = -50.0
    return round_of(model, x, y)


@pytest.mark.parametrize("knows_tail", [True, False])
def test_a_vector_that_does_not_fire_its_own_neuron_is_no_candidate(*, knows_tail: bool) -> None:
    # One neuron has a gradient, and hands out a sample of the batch that does not fire it.
    round_ = make_round(24, 80, 4)
    silent = int((round_.model[0](round_.x[0]) < 0).nonzero()[0])
    gradients = {name: torch.zeros_like(g) for name, g in round_.update.gradients.items()}
    gradients["0.weight"][silent] = 0.1 * round_.x[0]
    gradients["0.bias"][silent] = 0.1
    update = replace(round_.update, gradients=gradients)
    recovery = peel(round_.model, update, knows_tail=knows_tail)
    assert recovery.candidates_tested == 0
    assert len(recovery.unproven) == 0


def test_a_sample_that_does_not_weigh_what_one_sample_weighs_is_not_certified() -> None:
    # The first sample's gradient at the target is a thousandth too large at every neuron. Without
    # the next layer only the bias shows that; the structure does not depend on weights.
    round_ = make_round(24, 80, 4)
    only = local_update(round_.model, round_.x[:1], round_.y[:1])
    gradients = gradients_of(round_.update)
    for name in TARGET:
        gradients[name] += 0.001 / 4 * only.gradients[name]
    tampered = replace(round_.update, gradients=gradients)
    recovery = peel(round_.model, tampered, use_next_layer=False)
    assert recovered(recovery, round_) == {1, 2, 3}


def test_a_sample_must_have_its_weight_at_every_neuron_that_hands_it_out() -> None:
    # Half of the neurons are the first sample's own, so that no later round looks at them again.
    # One of them, not the one it is read from, weighs a thousandth more.
    round_ = with_a_loner(40, neurons=80, batch=4)
    honest = peel(round_.model, round_.update)
    place = truths_of(honest.samples, round_.x).index(0)
    other = honest.isolating[place][-1]
    assert other != int(honest.sources[place])
    recovery = peel(round_.model, times(round_.update, other, 1.001))
    assert recovered(recovery, round_) == {1, 2, 3}


def test_a_sample_must_not_fire_a_neuron_whose_residual_is_zero() -> None:
    # A neuron that the sample alone fires is struck out of the update in all layers; every other
    # neuron still proves the sample.
    round_ = make_round(24, 80, 4)
    honest = peel(round_.model, round_.update)
    sample = truths_of(honest.samples, round_.x)[0]
    silenced = honest.isolating[0][-1]
    update = times(round_.update, silenced, 0.0)
    update.gradients["2.weight"][:, silenced] = 0.0
    recovery = peel(round_.model, update)
    assert recovered(recovery, round_) == {0, 1, 2, 3} - {sample}


def test_one_equation_in_few_digits_is_not_enough_evidence() -> None:
    # Two classes and no next layer leave a single bias equation, in float32, and with more samples
    # than features the structure says nothing. Here a mixture satisfies that equation by chance.
    round_ = make_round(8, 40, 10, 2, seed=4, dtype=torch.float32)
    recovery = peel(round_.model, round_.update, use_next_layer=False)
    assert len(recovery) == 0
    isolated = set(round_.exposure.isolated.nonzero()[:, 0].tolist())
    assert isolated
    assert isolated <= readable(recovery, round_.x)


def test_equations_of_a_certain_prediction_are_no_evidence() -> None:
    # Every third sample is so large that its prediction is certain. Class 0 is predicted where the
    # label is 2, and class 2 where it is 1: the loss gradients e0 - e2 and e2 - e1 add up to
    # e0 - e1, that of one sample, so that a mixture of the two satisfies the bias equation to the
    # last digit. The small samples show what one sample weighs.
    model = make_model(6, 100, 4, seed=260)
    x, y = make_batch(6, 7, 4, seed=260)
    x[::3] *= 1000.0
    round_ = round_of(model, x, y)
    recovery = peel(model, round_.update, use_next_layer=False)
    assert len(recovery) > 0
    recovered(recovery, round_)


@pytest.mark.parametrize("use_next_layer", [True, False])
def test_a_bias_gradient_of_another_batch_leaves_no_structure(*, use_next_layer: bool) -> None:
    # The weight gradient alone has the rank of its batch, but nothing adds up to this bias.
    round_ = make_round(24, 80, 4)
    other = local_update(round_.model, *make_batch(24, 4, 4, seed=100))
    gradients = {**round_.update.gradients, "0.bias": other.gradients["0.bias"]}
    update = replace(round_.update, gradients=gradients)
    honest = peel(round_.model, round_.update, knows_tail=False, use_next_layer=use_next_layer)
    assert honest.rank == 4
    recovery = peel(round_.model, update, knows_tail=False, use_next_layer=use_next_layer)
    assert recovery.rank is None
    assert len(recovery) == 0


def test_no_sample_is_certified_whose_error_may_exceed_five_percent() -> None:
    # In float16 every reading may be off by more than 1 %, though the structure confirms most of
    # them. Multiplied by 100, the gradients keep clear of float16's subnormal numbers.
    round_ = make_round(30, 200, 8, 4, seed=121)
    gradients = {name: (100 * g).half() for name, g in round_.update.gradients.items()}
    recovery = peel(round_.model, Update(gradients, 8), knows_tail=False)
    # Not the decoder's own limits: they are what the mutant changes.
    assert not bool((recovery.errors > 0.05).any())
    assert len(readable(recovery, round_.x, within=0.05)) >= 7


def test_a_sample_that_is_known_is_not_certified_again() -> None:
    # The last sample is the first one again, but for a millionth in one feature. A neuron with its
    # hinge between the two isolates the last; without it, every other neuron isolates the first.
    gap = 1e-6
    model = make_model(24, 80, 4)
    x, y = make_batch(24, 4, 4)
    x[1:, 0] *= x[0, 0]  # nobody else beyond the hinge
    x, y = torch.cat([x, x[:1]]), torch.cat([y, y[:1]])
    x[4, 0] += gap
    first = model[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[0] = 0.0
        first.weight[0, 0] = 1.0 / gap
        first.bias[0] = -float(x[0, 0] + gap / 2) / gap
    recovery = peel(model, local_update(model, x, y))
    assert sorted(truths_of(recovery.samples, x, within=gap / 10)) == [1, 2, 3, 4]


def test_a_sample_on_trial_that_nothing_follows_from_is_taken_back() -> None:
    # The first sample fires a single neuron, where its weight is off by less than half the digits:
    # too much for a certificate, little enough for a trial. Nobody else fires there, so that
    # nothing can follow from it. So many neurons make firing patterns differ enough for trials.
    round_ = with_a_loner(1, neurons=300, batch=5)
    update = times(round_.update, 0, 1 + 5e-9)
    peeling = Peeling(round_.model, update, use_next_layer=False)
    assert Stage.SPECULATIVE in [step.stage for step in peeling]
    assert recovered(peeling.recovery(), round_) == {1, 2, 3, 4}
