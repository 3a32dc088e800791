"""The cascade at its edges: what it looks at again, whom it turns away, how it gets unstuck."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradpeel.audit import Audit, audit
from gradpeel.client import local_update
from gradpeel.decoder import Peeling, candidates, judging, peel
from gradpeel.decoder.candidates import Candidates, Readings, find
from gradpeel.decoder.certificate import Verdicts, certify_by_tail
from gradpeel.decoder.judging import Judge, Stage
from gradpeel.decoder.peeling import Look
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.tolerances import SLACK
from gradpeel.designs import SolitonData
from gradpeel.exposure import exposure
from gradpeel.update import Update
from support import SmallRound, make_batch, make_model, make_round, truths_of
from truth import Truth


def test_a_known_sample_is_not_chosen_again() -> None:
    round_ = make_round(batch=6)
    cascade = Peeling(round_.model, round_.update)
    first = next(iter(cascade))
    residual = cascade._residual
    residual.restore()  # as if nothing had been subtracted: all show once more
    everywhere = torch.ones_like(residual.quiet)
    readings = find(residual, everywhere, cascade._direction)
    again, verdicts = cascade._judge.judge(readings, residual, Stage.STRICT)
    assert int(verdicts.accepted.sum()) == first.certified > 0
    assert not len(cascade._choose(Look(readings, again, verdicts), speculate=False))


def test_two_readings_are_compared_as_far_as_they_can_be_trusted() -> None:
    round_ = make_round(batch=6)
    cascade = Peeling(round_.model, round_.update)
    next(iter(cascade))
    residual = cascade._residual
    residual.restore()
    readings = find(residual, torch.ones_like(residual.quiet), cascade._direction)
    again, verdicts = cascade._judge.judge(readings, residual, Stage.STRICT)
    # Read again with a trace of another: a thousandth off, which is what its equations say too.
    trace = 1e-3 * residual.scale * again.coordinates.roll(1, 0).sign()
    traced = replace(again, coordinates=again.coordinates + trace)
    assert len(cascade._choose(Look(readings, traced, verdicts), speculate=False))
    told = replace(verdicts, mismatch=torch.full_like(verdicts.mismatch, 1e-3))
    assert not len(cascade._choose(Look(readings, traced, told), speculate=False))


@pytest.mark.parametrize("features", [12, 120])
def test_numbers_that_are_not_those_certified_are_withdrawn(features: int) -> None:
    round_ = make_round(features=features, batch=6)
    cascade = Peeling(round_.model, round_.update)
    list(cascade)
    whole = cascade.recovery()
    assert whole.complete
    cascade._ledger._combinations[2] *= 1.1
    rest = cascade.recovery()
    kept = [i for i in range(6) if i != 2]
    assert not rest.complete
    torch.testing.assert_close(rest.samples, whole.samples[kept], rtol=0, atol=1e-13)
    for part in ("labels", "residuals", "errors", "chances", "equations", "rounds", "sources"):
        assert torch.equal(getattr(rest, part), getattr(whole, part)[kept])
    for name in ("isolating", "evidence", "label_counts"):
        assert getattr(rest, name) == tuple(getattr(whole, name)[i] for i in kept)


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_read_from_several_neurons_is_chosen_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = make_round(batch=8, seed=seed)
    expected = sorted(truths_of(peel(round_.model, round_.update).samples, round_.x))

    def never(along: Tensor, *_: Any) -> Tensor:
        return torch.arange(len(along))

    monkeypatch.setattr(candidates, "_merge", never)
    recovery = peel(round_.model, round_.update)
    assert recovery.trace[0].distinct == recovery.trace[0].looked_at
    assert sorted(truths_of(recovery.samples, round_.x)) == expected


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


def test_no_more_samples_than_the_batch_has() -> None:
    # Where the loss is a sum, the batch size plays no part in any equation.
    round_ = make_round(batch=8, reduction="sum")
    assert len(peel(round_.model, round_.update)) == 8
    few = Update(round_.update.gradients, 3, "sum")
    recovery = peel(round_.model, few)
    assert len(recovery) == 3
    assert not recovery.complete
    assert -1 not in truths_of(recovery.samples, round_.x)


def test_only_neurons_that_were_touched_are_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    round_ = make_round(neurons=60, batch=12, seed=3)
    looks: list[set[int]] = []
    stages: list[Stage] = []
    judge = Judge.judge

    def spy(
        self: Judge, readings: Readings, residual: Residual, stage: Stage
    ) -> tuple[Candidates, Verdicts]:
        looks.append(set(readings.pairs[1].tolist()))
        stages.append(stage)
        return judge(self, readings, residual, stage)

    monkeypatch.setattr(Judge, "judge", spy)
    recovery = peel(round_.model, round_.update)
    assert recovery.cascade_length >= 3
    rounds = round_.exposure.rounds
    grid = round_.exposure.grid
    for number in range(2, recovery.cascade_length + 1):
        fallen = grid[:, rounds == number - 1].any(1)
        left = grid[:, (rounds >= number) | (rounds == 0)].any(1)
        assert looks[number - 1]
        assert looks[number - 1] <= set((fallen & left).nonzero()[:, 0].tolist())
    # Exact samples need no second, lenient look.
    assert set(stages[: recovery.cascade_length]) == {Stage.STRICT}


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
def test_a_sample_with_next_to_no_gradient_hides_nobody(size: float) -> None:
    round_ = crowd_with_a_shadow(size)
    assert bool(round_.exposure.grid[:, 0].all())
    assert not bool(round_.exposure.isolated[1:].any()), "in the grid it hides everybody"
    recovery = peel(round_.model, round_.update)
    truths = truths_of(recovery.samples, round_.x)
    assert -1 not in truths
    assert len(set(truths)) == len(truths)
    alone = SmallRound(round_.model, round_.x[1:], round_.y[1:], round_.update).exposure
    reached = {i + 1 for i in alone.reached.nonzero()[:, 0].tolist()}
    assert reached
    assert reached <= set(truths)


def blur(cascade: Peeling, round_: SmallRound, error: float) -> list[int]:
    """Make a cascade forget all but a few digits of what it holds; says whom it holds."""
    ledger, residual = cascade._ledger, cascade._residual
    order = truths_of(cascade.recovery().samples, round_.x)
    ledger.peeled = Truth.of(round_).blurred(residual, error).pick(torch.tensor(order))
    ledger._combinations = ledger._combinations[:0]
    residual.restore()
    residual.subtract(ledger.peeled)
    return order


BOTH_SPACES = pytest.mark.parametrize("features", [30, 220], ids=["input space", "neuron space"])


@BOTH_SPACES
def test_refined_samples_replace_those_that_were_read(features: int) -> None:
    round_ = make_round(features=features, neurons=200, batch=8)
    cascade = Peeling(round_.model, round_.update)
    assert sum(step.certified for step in cascade) == 8
    order = blur(cascade, round_, 1e-6)
    residual = cascade._residual
    vague = residual.row_error.clone()
    assert 1e-8 < float((cascade.recovery().samples - round_.x[order]).abs().max()) < 1e-3
    assert cascade._refine()
    assert float((cascade.recovery().samples - round_.x[order]).abs().max()) < 1e-10
    assert bool(residual.quiet.all())
    assert float(residual.row_error.max()) < 1e-2 * float(vague.max())
    # Nothing new since then, nothing to gain.
    assert not cascade._refine()


@BOTH_SPACES
def test_inexact_samples_are_refined_at_the_end(features: int) -> None:
    round_ = make_round(features=features, neurons=200, batch=8)
    cascade = Peeling(round_.model, round_.update)
    rounds = iter(cascade)
    assert sum(next(rounds).certified for _ in range(round_.exposure.rounds_count)) == 8
    order = blur(cascade, round_, 1e-6)
    assert not list(rounds)
    assert float((cascade.recovery().samples - round_.x[order]).abs().max()) < 1e-10


def test_samples_are_refined_before_they_are_too_inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    # Later, their masks would be in doubt.
    round_ = make_round(neurons=60, batch=12, seed=3)
    for error, early in ((1e-12, False), (1e-5, True)):
        events: list[str] = []

        def vague(*given: Any, error: float = error, **named: Any) -> Verdicts:
            verdicts = certify_by_tail(*given, **named)
            inexact = verdicts.peeled.sample_error.clamp(min=error)
            return replace(verdicts, peeled=replace(verdicts.peeled, sample_error=inexact))

        def refine(_: Peeling, events: list[str] = events, **__: bool) -> bool:
            events.append("refined")
            return False

        monkeypatch.setattr(judging, "certify_by_tail", vague)
        monkeypatch.setattr(Peeling, "_refine", refine)
        for _ in Peeling(round_.model, round_.update):
            events.append("round")  # noqa: PERF401
        assert events[0] == "round"
        assert (events[1] == "refined") == early


def surest(seed: int, scale: float, batch: int, *, features: int = 40, neurons: int = 200) -> Audit:
    """A float32 round with large weights behind the target: gradients of all sizes, few digits."""
    model = make_model(features, neurons, 4, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(scale)
    design = SolitonData(make_batch(features, batch, 4, seed=seed + 1000)[0])
    x, y = make_batch(features, batch, 4, seed=seed)
    return audit(model, x, y, design=design, dtype=torch.float32, seed=seed)


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(3))
def test_refinement_lets_a_stalled_cascade_go_on(
    features: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = make_round(features=features, neurons=200, batch=14, seed=seed)
    reached = int(round_.exposure.reached.sum())
    found = []
    for refining in (True, False):
        if not refining:
            monkeypatch.setattr(Peeling, "_refine", lambda _, **__: False)
        cascade = Peeling(round_.model, round_.update)
        rounds = iter(cascade)
        assert next(rounds).certified < reached
        # As if the first had been read with two digits only: too few to see the rest by.
        known = len(blur(cascade, round_, 5e-3))
        found.append(known + sum(step.certified for step in rounds))
    assert found[0] == reached
    assert found[1] < found[0]


@pytest.mark.parametrize(
    ("seed", "scale"),
    [
        (0, 15.0),
        (1, 15.0),
        (0, 30.0),
        (1, 30.0),
        (4, 30.0),  # here one sample is read twice, once with a trace of another
        (11, 15.0),  # and here one comes with 2.6 % of another
    ],
)
def test_sure_predictions_in_few_digits_certify_nothing_false(seed: int, scale: float) -> None:
    found = surest(seed, scale, 40)
    # The surer the predictions, the more gradients are parallel, and the less can be proven; nor
    # does the structure help with as many samples as features.
    assert found.score.recovered >= (18 if scale == 15.0 else 8)
    assert found.score.false_certificates == found.score.repeats == 0
    assert found.score.label_accuracy == 1.0


@pytest.mark.parametrize("scale", [15.0, 20.0])
def test_those_who_are_not_recovered_do_not_spoil_the_others(scale: float) -> None:
    found = surest(0, scale, 60, features=80, neurons=250)
    assert found.score.recovered >= 50
    assert found.score.false_certificates == found.score.repeats == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_recovered_samples_are_as_exact_as_they_say(seed: int, dtype: torch.dtype) -> None:
    model = make_model(40, 200, 4, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(10.0)
    x, y = make_batch(40, 60, 4, seed=seed)
    design = SolitonData(make_batch(40, 60, 4, seed=1000)[0])
    found = audit(model, x, y, design=design, dtype=dtype)
    assert found.score.recovered >= 50
    exact = x.to(dtype).double()[found.score.matches]
    off = (found.recovery.samples - exact).square().mean(1).sqrt() / exact.square().mean().sqrt()
    assert bool((off <= SLACK * found.recovery.errors).all())
    # No better than the dtype allows, and not much worse than they are.
    ratio = off / found.recovery.errors
    assert float(ratio.median()) > 1e-3


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
def test_few_classes_in_few_digits_certify_nothing_false(
    classes: int, noise: float, dtype: torch.dtype, seed: int
) -> None:
    features, neurons, batch = [(60, 200, 16), (300, 250, 40), (12, 200, 10)][seed % 4]
    x, y = make_batch(features, batch, classes, seed=seed)
    model = make_model(features, neurons, classes, seed=seed)
    found = audit(model, x, y, dtype=dtype, noise=noise, seed=seed)
    assert found.score.recovered > 0 or noise == 1e-3
    assert found.score.false_certificates == found.score.repeats == 0
