"""The decoder against its judge, the peeling bound, and the laws it obeys."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.client import local_update
from gradpeel.decoder import Peeling, peel
from gradpeel.decoder.recovery import Evidence
from gradpeel.networks import mlp
from gradpeel.signals import contributions, signals
from gradpeel.update import Update
from support import (
    SmallRound,
    make_batch,
    make_model,
    make_round,
    readable,
    recovered,
    truths_of,
)

ROUNDS = st.builds(
    make_round,
    features=st.integers(3, 90),
    neurons=st.integers(4, 70),
    batch=st.integers(1, 12),
    classes=st.integers(2, 12),
    hidden=st.sampled_from([(), (), (30,), (30, 12)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
)


@settings(max_examples=40)
@given(ROUNDS)
def test_recovers_what_the_bound_reaches(round_: SmallRound) -> None:
    exposed = round_.exposure
    target = gp.split(round_.model)
    # A dead hidden layer or a certain prediction leaves a sample without gradient: it cannot be
    # recovered, and it hides nobody.
    carried = signals(contributions(target, round_.x, round_.y, exposed.copies), exposed) > 1e-9
    reached = set(exposed.reached.nonzero()[:, 0].tolist())
    clear = {i for i in reached if carried[i]}
    recovery = peel(round_.model, round_.update, effort=0.0)
    found = recovered(recovery, round_)
    # Who stands alone is read, with proof or without.
    alone = set((exposed.isolated & carried).nonzero()[:, 0].tolist())
    assert alone <= readable(recovery, round_.x, within=1e-6)
    # What one sample weighs takes more than one to tell, and gradients that are not all parallel.
    if len(alone) < 2 or round_.classes == 2:
        return
    assert clear <= found
    if carried[exposed.reached].all():
        assert found == reached
        assert recovery.complete == (len(found) == len(round_.x))


@settings(max_examples=25)
@given(ROUNDS)
@pytest.mark.slow
def test_without_the_next_layers_gradient_nothing_false_is_certified(round_: SmallRound) -> None:
    kept = {name: g for name, g in round_.update.gradients.items() if name.startswith("0.")}
    update = Update(kept, round_.update.batch_size, round_.update.reduction)
    recovery = peel(round_.model, update)
    assert "next layer" not in recovery.kinds
    recovered(recovery, round_)


def test_the_bias_equation_alone_recovers_a_batch() -> None:
    round_ = make_round(features=40, neurons=120, batch=10)
    recovery = peel(round_.model, round_.update, use_next_layer=False)
    assert recovered(recovery, round_) == set(range(10))
    assert recovery.kinds == ("bias equation",)


@pytest.mark.parametrize(("features", "neurons"), [(12, 60), (90, 60)])
def test_rounds_are_those_of_the_grid(features: int, neurons: int) -> None:
    round_ = make_round(features=features, neurons=neurons, batch=12, seed=3)
    recovery = peel(round_.model, round_.update)
    truths = truths_of(recovery.samples, round_.x)
    assert len(truths) > 1
    assert recovery.rounds.tolist() == round_.exposure.rounds[truths].tolist()
    for sample, source, isolating in zip(
        truths, recovery.sources.tolist(), recovery.isolating, strict=True
    ):
        assert source in isolating
        assert bool(round_.exposure.grid[list(isolating), sample].all())


def permuted(model: nn.Sequential, neurons: Tensor, classes: Tensor) -> nn.Sequential:
    shuffled = copy.deepcopy(model)
    first, last = shuffled[0], shuffled[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.copy_(first.weight[neurons].clone())
        first.bias.copy_(first.bias[neurons].clone())
        last.weight.copy_(last.weight[:, neurons][classes].clone())
        last.bias.copy_(last.bias[classes].clone())
    return shuffled


@settings(max_examples=15)
@given(st.integers(0, 1000))
@pytest.mark.slow
def test_order_of_samples_neurons_and_classes_does_not_matter(seed: int) -> None:
    round_ = make_round(batch=10, classes=5, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    samples, neurons, classes = (torch.randperm(n, generator=generator) for n in (10, 80, 5))
    model = permuted(round_.model, neurons, classes)
    labels = torch.argsort(classes)[round_.y]
    update = local_update(model, round_.x[samples], labels[samples])
    plain = peel(round_.model, round_.update)
    other = peel(model, update)
    assert set(truths_of(plain.samples, round_.x)) == set(truths_of(other.samples, round_.x))
    assert classes[other.labels].sort().values.tolist() == plain.labels.sort().values.tolist()


def test_yields_each_round_as_it_happens() -> None:
    round_ = make_round(batch=12)
    peeling = Peeling(round_.model, round_.update)
    seen = 0
    for number, step in enumerate(peeling, start=1):
        assert step.number == number
        assert step.certified > 0
        seen += step.certified
        assert len(peeling.recovery()) == seen
        assert step.fires.shape == (step.certified, 80)
        assert step.left >= 0
    recovery = peeling.recovery()
    assert sum(step.certified for step in recovery.trace) == len(recovery) == seen
    assert recovery.trace[-1].left < 1e-9


def test_complete_is_a_proof_over_all_layers() -> None:
    round_ = make_round()
    assert peel(round_.model, round_.update).complete
    # The same first layer, but another layer's bias gradient is not what the samples give.
    gradients = dict(round_.update.gradients)
    gradients["2.bias"] = gradients["2.bias"] + 0.01
    recovery = peel(round_.model, Update(gradients, round_.update.batch_size))
    assert len(recovery) == len(round_.x)
    assert not recovery.complete
    assert recovery.stopped.endswith("together they do not explain the whole update")


def test_claims_no_completeness_for_a_part_of_the_batch() -> None:
    round_ = make_round(neurons=12, batch=12, seed=5)
    recovery = peel(round_.model, round_.update)
    assert 0 < len(recovery) < 12
    assert not recovery.complete
    assert not recovery.faint
    assert 0 < recovery.explained < 1
    assert recovery.stopped.startswith("no neuron isolates")


def test_a_sample_without_gradient_is_named_not_hidden() -> None:
    model = make_model(24, 400, 4)
    x, y = make_batch(24, 8, 4)
    last = model[2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(1e6)  # one class is certain; who has it as a label has no gradient
    y[0] = model(x[:1]).argmax()
    recovery = peel(model, local_update(model, x, y))
    truths = truths_of(recovery.samples, x)
    assert -1 not in truths
    assert 0 not in truths
    assert recovery.faint
    assert "too faint to be certified in float64" in recovery.stopped


def test_declared_range_turns_samples_away() -> None:
    round_ = make_round(batch=6)
    inside = peel(round_.model, round_.update, data_range=(0.0, 1.0))
    assert len(inside) == 6
    assert all(Evidence.RANGE in kinds for kinds in inside.evidence)
    outside = peel(round_.model, round_.update, data_range=(2.0, 3.0))
    assert len(outside) == 0
    top = round_.x.amax(1).sort().values
    some = peel(round_.model, round_.update, data_range=(0.0, float(top[:-1].max())))
    assert len(some) < 6


def test_samples_come_back_in_input_space() -> None:
    x, y = torch.rand(5, 3, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    body = make_model(48, 120, 3)
    model = nn.Sequential(
        gp.Normalise([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]), nn.Flatten(), *body
    ).double()
    recovery = peel(model, local_update(model, x, y), sample_shape=(3, 4, 4))
    assert recovery.samples.shape == (5, 3, 4, 4)
    assert -1 not in truths_of(recovery.samples, x)


def corruptions(round_: SmallRound) -> dict[str, tuple[nn.Module, Update]]:
    sent, size = round_.update.gradients, round_.update.batch_size
    generator = torch.Generator().manual_seed(7)
    noise = {
        name: torch.randn(g.shape, generator=generator, dtype=g.dtype) * g.std()
        for name, g in sent.items()
    }
    shuffled = dict(sent)
    shuffled["0.bias"] = sent["0.bias"].roll(1)
    noised = {name: g + 0.1 * noise[name] for name, g in sent.items()}
    return {
        "pure noise": (round_.model, Update(noise, size)),
        "shuffled biases": (round_.model, Update(shuffled, size)),
        "noised": (round_.model, Update(noised, size)),
        "another model": (make_model(24, 80, 4, seed=99), round_.update),
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["pure noise", "shuffled biases", "noised", "another model"])
@pytest.mark.parametrize("use_next_layer", [True, False])
@pytest.mark.slow
def test_nothing_is_certified_where_there_is_no_sample(
    kind: str, seed: int, *, use_next_layer: bool
) -> None:
    round_ = make_round(seed=seed)
    model, update = corruptions(round_)[kind]
    assert len(peel(model, update, use_next_layer=use_next_layer)) == 0
    # Nor where nobody says how large the batch is, or how the loss is made.
    unknown = replace(update, batch_size=None)
    assert len(peel(model, unknown, use_next_layer=use_next_layer)) == 0
    assert len(peel(model, unknown, use_next_layer=use_next_layer, knows_tail=False)) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_mixtures_alone_are_never_certified(seed: int) -> None:
    # Every neuron fires on every sample: no singletons, ever.
    model = make_model(24, 80, 4, seed=seed)
    first = model[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.bias.add_(50.0)
    x, y = make_batch(24, 8, 4, seed=seed)
    update = local_update(model, x, y)
    assert len(peel(model, update)) == 0
    assert len(peel(model, replace(update, batch_size=None))) == 0
    assert len(peel(model, update, knows_tail=False)) == 0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", [1, 3, 5, 6])
@pytest.mark.slow
def test_whole_number_mixtures_of_certain_samples_are_no_samples(seed: int, classes: int) -> None:
    # Large inputs make every prediction certain: p - e_y is +-1 at two classes, and a + b - c
    # satisfies every equation of the certificate.
    rng = np.random.default_rng([seed, classes, 20])
    x = torch.tensor(rng.normal(size=(24, 20)) * 100)
    y = torch.tensor(rng.integers(0, classes, 24))
    rng.normal(size=(24, 20))
    model = mlp(20, classes, hidden=(60,), rng=rng)
    found = gp.audit(model, x, y, attacker=gp.Attacker(gp.designs.Passive("gaussian")), seed=seed)
    assert found.score.false_certificates == 0


def test_decodes_the_same_way_every_time() -> None:
    round_ = make_round(batch=12)
    one, other = (peel(round_.model, round_.update) for _ in range(2))
    assert torch.equal(one.samples, other.samples)
    assert torch.equal(one.residuals, other.residuals)


def test_leaves_model_and_update_as_they_were() -> None:
    round_ = make_round()
    before = copy.deepcopy((round_.model.state_dict(), dict(round_.update.gradients)))
    peel(round_.model, round_.update)
    for old, new in zip(before, (round_.model.state_dict(), round_.update.gradients), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.slow
def test_the_decoder_cannot_see_the_truth() -> None:
    code = (
        "import sys, types; sys.modules['gradpeel'] = m = types.ModuleType('gradpeel');"
        f"m.__path__ = {list(gp.__path__)!r}; import gradpeel.decoder;"
        "print([n for n in sys.modules if 'scoring' in n or 'audit' in n or 'exposure' in n])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ERRORS = [
    ({"0.bias": torch.ones(80)}, "no gradient '0.weight', the target's"),
    ({"9.weight": torch.ones(2)}, "'9.weight': the model has no such parameter"),
    ({"0.weight": torch.ones(80, 23)}, "'0.weight' has shape (80, 23): the model's is (80, 24)"),
]


@pytest.mark.parametrize(("change", "message"), ERRORS)
def test_refuses_an_update_that_does_not_belong(change: dict[str, Tensor], message: str) -> None:
    round_ = make_round()
    gradients = {} if "no gradient" in message else dict(round_.update.gradients)
    gradients |= {name: tensor.double() for name, tensor in change.items()}
    with pytest.raises(gp.InputError) as error:
        peel(round_.model, Update(gradients, 8))
    assert message in str(error.value)


def test_refuses_a_range_the_wrong_way_round() -> None:
    round_ = make_round()
    with pytest.raises(gp.InputError, match=r"data_range=\(1.0, 0.0\): expected the smaller"):
        peel(round_.model, round_.update, data_range=(1.0, 0.0))
