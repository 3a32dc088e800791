"""The cascade at its edges: what it looks at again, whom it turns away, how it gets unstuck."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradpeel.audit import Audit, audit
from gradpeel.client import local_update
from gradpeel.decoder import Peeling, candidates, peel, peeling
from gradpeel.decoder.candidates import Candidates, gather
from gradpeel.decoder.certificate import Verdicts, certify
from gradpeel.decoder.tolerances import SLACK
from gradpeel.designs import SolitonData
from gradpeel.exposure import exposure
from gradpeel.update import Update
from support import SmallRound, make_batch, make_model, make_round, truths_of


def test_a_known_sample_is_not_chosen_again() -> None:
    round_ = make_round(batch=6)
    cascade = Peeling(round_.model, round_.update)
    first = next(iter(cascade))
    residual = cascade._residual
    residual.restore()  # as if nothing had been subtracted: all show once more
    everywhere = torch.ones_like(residual.quiet)
    again = gather(residual, everywhere, cascade._direction)
    verdicts = certify(again, residual, cascade._target.tail, cascade._probe, cascade._structure)
    assert int(verdicts.accepted.sum()) == first.certified > 0
    assert not len(cascade._choose(again, verdicts))


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_read_from_several_neurons_is_chosen_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = make_round(batch=8, seed=seed)
    expected = sorted(truths_of(peel(round_.model, round_.update).samples, round_.x))

    def never(coordinates: Tensor, *_: Tensor) -> Tensor:
        return torch.arange(len(coordinates))

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
    strictness: list[bool] = []

    def spy(found: Candidates, *others: Any, strict: bool = True) -> Verdicts:
        looks.append(set(found.pairs[1].tolist()))
        strictness.append(strict)
        return certify(found, *others, strict=strict)

    monkeypatch.setattr(peeling, "certify", spy)
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
    assert all(strictness[: recovery.cascade_length])


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


def surest(seed: int, scale: float, batch: int) -> Audit:
    """A float32 round with large weights behind the target: gradients of all sizes, few digits."""
    model = make_model(40, 200, 4, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(scale)
    design = SolitonData(make_batch(40, batch, 4, seed=seed + 1000)[0])
    x, y = make_batch(40, batch, 4, seed=seed)
    return audit(model, x, y, design=design, dtype=torch.float32, seed=seed)


def test_refinement_lets_stalled_cascades_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = 0, 2
    refined = [surest(seed, 30.0, 60) for seed in seeds]
    monkeypatch.setattr(Peeling, "_refine", lambda _: False)
    plain = [surest(seed, 30.0, 60) for seed in seeds]
    for found in (*refined, *plain):
        assert found.score.false_certificates == found.score.repeats == 0
        assert found.score.label_accuracy == 1.0
    gained = [a.score.recovered - b.score.recovered for a, b in zip(refined, plain, strict=True)]
    assert min(gained) >= 0
    assert sum(gained) >= 10


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
    assert found.score.recovered >= 25
    assert found.score.false_certificates == found.score.repeats == 0
    assert found.score.label_accuracy == 1.0


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
