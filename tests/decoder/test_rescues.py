"""Sure predictions in few digits: what a stalled cascade does, and what it may not do.

Large weights behind the target make gradients of all sizes, many of them nearly parallel. Here
cascades stall, look harder, refine what they know and try what they cannot prove yet.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from gradpeel import Attacker, Client
from gradpeel.audit import Audit, audit
from gradpeel.client import local_update
from gradpeel.decoder import Peeling, Stage, peel
from gradpeel.decoder.recovery import Evidence
from gradpeel.designs import SolitonData
from gradpeel.exposure import exposure
from support import SmallRound, make_batch, make_model, readable, truths_of


@cache
def surest(
    seed: int,
    scale: float,
    batch: int,
    *,
    features: int = 40,
    neurons: int = 200,
    dtype: torch.dtype = torch.float32,
) -> Audit:
    """A round with large weights behind the target."""
    model = make_model(features, neurons, 4, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(scale)
    design = SolitonData(make_batch(features, batch, 4, seed=seed + 1000)[0])
    x, y = make_batch(features, batch, 4, seed=seed)
    return audit(model, x, y, client=Client(dtype=dtype), attacker=Attacker(design), seed=seed)


@pytest.mark.parametrize(
    ("seed", "scale", "least"),
    [
        (0, 15.0, 16),
        (0, 30.0, 14),
        (4, 30.0, 5),  # here one sample is read twice, once with a trace of another
        (11, 15.0, 14),  # and here one comes with 2.6 % of another
    ],
)
@pytest.mark.slow
def test_sure_predictions_in_few_digits_certify_nothing_false(
    seed: int, scale: float, least: int
) -> None:
    found = surest(seed, scale, 40)
    # The surer the predictions, the more gradients are parallel, and the less can be proven; nor
    # does the structure help with as many samples as features.
    assert found.score.recovered >= least
    assert found.score.false_certificates == found.score.repeats == 0
    assert found.score.label_accuracy == 1.0
    assert found.score.read >= found.score.recovered


@pytest.mark.parametrize("scale", [15.0, 20.0])
@pytest.mark.slow
def test_those_who_are_not_recovered_do_not_spoil_the_others(scale: float) -> None:
    found = surest(0, scale, 60, features=80, neurons=250)
    assert found.score.recovered >= 50
    assert found.score.false_certificates == found.score.repeats == 0


def test_what_follows_from_a_sample_speaks_for_it() -> None:
    recovery = surest(0, 15.0, 40).recovery
    tried = [stage is Stage.SPECULATIVE for stage in recovery.stages]
    followed = [Evidence.FOLLOWERS in kinds for kinds in recovery.evidence]
    assert sum(followed) >= 3
    # Nobody is reported on trial: what was missing then has followed.
    assert all(trial for trial, more in zip(tried, followed, strict=True) if more)
    assert bool((recovery.scores >= 9).all())
    assert "what follows from it" in recovery.kinds


def test_who_is_taken_back_leaves_no_trace() -> None:
    found = surest(0, 30.0, 40)
    recovery = found.recovery
    # More is tried here than stays.
    trials = sum(step.stage is Stage.SPECULATIVE for step in recovery.trace)
    stayed = sum(stage is Stage.SPECULATIVE for stage in recovery.stages)
    assert 0 < stayed < trials
    sources = {source for step in recovery.trace for source in step.sources.tolist()}
    assert sources <= set(recovery.sources.tolist())
    assert found.score.false_certificates == 0


@pytest.mark.slow
def test_nobody_is_reported_on_trial() -> None:
    # Asked before it is settled, too.
    found = surest(0, 30.0, 40)
    peeling = Peeling(found.model, found.update)
    true = found.x.to(torch.float32).double()
    for _ in peeling:
        recovery = peeling.recovery()
        assert bool((recovery.scores >= 9).all())
        assert -1 not in truths_of(recovery.samples, true, within=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_harder_looks_find_more(dtype: torch.dtype) -> None:
    found = surest(3, 30.0, 30, features=60, neurons=250, dtype=dtype)
    assert Stage.MEASURED in found.recovery.stages
    assert found.score.recovered >= 26
    assert found.score.false_certificates == found.score.repeats == 0


@pytest.mark.slow
def test_with_two_classes_nothing_is_tried() -> None:
    # All gradients are parallel there: what follows confirms nothing.
    for seed in range(3):
        model = make_model(40, 200, 2, seed=seed)
        with torch.no_grad():
            model.get_parameter("2.weight").mul_(15.0)
        x, y = make_batch(40, 40, 2, seed=seed)
        design = SolitonData(make_batch(40, 40, 2, seed=seed + 1000)[0])
        found = audit(
            model, x, y, client=Client(dtype=torch.float32), attacker=Attacker(design), seed=seed
        )
        assert all(step.stage < Stage.SPECULATIVE for step in found.recovery.trace)
        assert found.score.false_certificates == 0


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_recovered_samples_are_as_exact_as_they_say(seed: int, dtype: torch.dtype) -> None:
    found = surest(seed, 10.0, 60, features=80, neurons=250, dtype=dtype)
    assert found.score.recovered >= 50
    exact = found.x.to(dtype).double()[found.score.matches]
    off = (found.recovery.samples - exact).square().mean(1).sqrt() / exact.square().mean().sqrt()
    ratio = off / found.recovery.errors
    assert float(ratio.max()) <= 10
    # No better than the dtype allows, and not much worse than they are.
    assert float(ratio.median()) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_at_the_ends_of_the_range_are_within_it(dtype: torch.dtype) -> None:
    # Black and white, shifted: roundings fall on both sides of either.
    model = make_model(24, 80, 4).to(dtype)
    x, y = make_batch(24, 12, 4)
    x = x.round() + 0.3
    recovery = peel(model, local_update(model, x, y), data_range=(0.3, 1.3))
    assert len(recovery) == int(exposure(model, x).reached.sum()) > 1
    assert float(recovery.samples.min()) < 0.3
    assert float(recovery.samples.max()) > 1.3


def crowd_with_a_shadow(size: float) -> SmallRound:
    """A batch whose first sample fires every neuron, with a gradient of about the given size."""
    model = make_model(24, 80, 4)
    x, y = make_batch(24, 8, 4)
    with torch.no_grad():
        model.get_parameter("0.weight")[:, 0] = 10.0
    x[:, 0], x[0, 0] = 0.0, 1.0
    y[0] = model(x[:1]).argmax()
    last = model[2]
    assert isinstance(last, nn.Linear)
    # The surer the prediction, the fainter the sample: find the scale of the last layer.
    low, high = 0.0, 100.0
    weight, bias = last.weight.detach().clone(), last.bias.detach().clone()
    for _ in range(60):
        scale = (low + high) / 2
        with torch.no_grad():
            last.weight.copy_(weight * scale)
            last.bias.copy_(bias * scale)
            logits = model(x[:1])[0]
        others = torch.cat([logits[: y[0]], logits[y[0] + 1 :]])
        faint = float((others - logits[y[0]]).logsumexp(0).exp()) < size
        low, high = (low, scale) if faint else (scale, high)
    return SmallRound(model, x, y, local_update(model, x, y))


@pytest.mark.parametrize("size", [1e-10, 1e-12])
def test_a_sample_with_next_to_no_gradient_hides_nobody_from_view(size: float) -> None:
    round_ = crowd_with_a_shadow(size)
    assert bool(round_.exposure.grid[:, 0].all())
    assert not bool(round_.exposure.isolated[1:].any()), "in the grid it hides everybody"
    recovery = peel(round_.model, round_.update)
    assert -1 not in truths_of(recovery.samples, round_.x)
    alone = SmallRound(round_.model, round_.x[1:], round_.y[1:], round_.update).exposure
    isolated = {i + 1 for i in alone.isolated.nonzero()[:, 0].tolist()}
    assert isolated
    assert isolated <= readable(recovery, round_.x)


@pytest.mark.parametrize(
    ("classes", "noise", "dtype", "seed"),
    [
        # Forty samples fire the same neurons, and all their gradients are parallel.
        (2, 1e-5, torch.float64, 29),
        (2, 1e-3, torch.float64, 2),
        # Sensitivities are known worse than what they are divided by.
        (3, 0.0, torch.float16, 40),
    ],
)
@pytest.mark.slow
def test_few_classes_in_few_digits_certify_nothing_false(
    classes: int, noise: float, dtype: torch.dtype, seed: int
) -> None:
    features, neurons, batch = [(60, 200, 16), (300, 250, 40), (12, 200, 10)][seed % 4]
    x, y = make_batch(features, batch, classes, seed=seed)
    model = make_model(features, neurons, classes, seed=seed)
    found = audit(model, x, y, client=Client(dtype=dtype, noise=noise), seed=seed)
    assert found.score.read > 0
    assert found.score.false_certificates == found.score.repeats == 0


@pytest.mark.slow
def test_the_trace_holds_everybody_who_is_certified() -> None:
    model = make_model(40, 200, 4)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(30.0)
    design = SolitonData(make_batch(40, 40, 4, seed=1000)[0])
    x, y = make_batch(40, 40, 4)
    recovery = audit(
        model, x, y, client=Client(dtype=torch.float32), attacker=Attacker(design)
    ).recovery
    assert sum(step.certified for step in recovery.trace) == len(recovery)
