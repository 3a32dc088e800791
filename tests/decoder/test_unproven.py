"""What a server can read without proof: ranked candidates, groups, and a cascade by a guess."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import gradpeel as gp
from gradpeel.datasets import load
from gradpeel.decoder import peel
from gradpeel.decoder.recovery import Evidence
from gradpeel.noise import with_noise
from gradpeel.update import Reduction, Update
from support import (
    SmallRound,
    default_model,
    first_is_fast,
    make_batch,
    make_model,
    make_round,
    readable,
    round_of,
    truths_of,
)


def single_look(update: Update, x: Tensor, *, within: float) -> set[int]:
    """The samples that dividing weight gradients by bias gradients shows: the slow, obvious way."""
    weight, bias = (update.gradients[name].double() for name in ("0.weight", "0.bias"))
    live = bias != 0
    return set(truths_of(weight[live] / bias[live, None], x, within=within)) - {-1}


ROUNDS = st.builds(
    make_round,
    features=st.sampled_from([8, 30, 60]),
    neurons=st.sampled_from([40, 120]),
    batch=st.integers(1, 12),
    classes=st.integers(2, 8),
    hidden=st.sampled_from([(), (20,)]),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)


@settings(max_examples=15)
@given(ROUNDS, st.sampled_from([0.0, 1e-6, 1e-3]))
@pytest.mark.slow
def test_an_audit_counts_no_fewer_than_a_single_look_shows(
    round_: SmallRound, noise: float
) -> None:
    found = gp.audit(
        round_.model, round_.x, round_.y, client=gp.Client(noise=noise, dtype=round_.update.dtype)
    )
    # What counts as right is a part of the distance between samples; this is far below it.
    assert found.score.read >= len(single_look(found.update, round_.x, within=1e-3))
    assert found.score.read >= found.score.recovered


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    classes=st.integers(2, 6),
    hidden=st.sampled_from([(), (20,)]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    reduction=st.sampled_from(["mean", "sum"]),
    knows_tail=st.booleans(),
)
@pytest.mark.slow
def test_a_single_sample_is_always_read(
    *,
    seed: int,
    classes: int,
    hidden: tuple[int, ...],
    dtype: torch.dtype,
    reduction: Reduction,
    knows_tail: bool,
) -> None:
    model = make_model(30, 60, classes, hidden, seed=seed).to(dtype)
    x, y = make_batch(30, 1, classes, seed=seed)
    found = gp.audit(
        model,
        x,
        y,
        client=gp.Client(reduction=reduction),
        attacker=gp.Attacker(knows_tail=knows_tail),
    )
    if float(found.update.gradients["0.bias"].abs().max()) == 0:
        return
    assert found.score.read == 1
    assert found.score.false_certificates == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_most_credible_come_first(seed: int) -> None:
    round_ = make_round(30, 60, 12, 5, seed=seed)
    unproven = peel(round_.model, round_.update).unproven
    assert len(unproven) > 10
    assert bool((unproven.mismatch.diff() >= 0).all())
    everybody = unproven.samples()
    assert everybody.shape == (len(unproven), 30)
    some = torch.tensor([3, 0, 5])
    torch.testing.assert_close(unproven.samples(some), everybody[some])
    for values in (unproven.neurons, unproven.sizes, unproven.radii, unproven.mismatch):
        assert len(values) == len(unproven)
    assert repr(unproven).startswith(f"Unproven({len(unproven)} candidates, ")


def test_no_candidate_is_a_sample_that_is_certified() -> None:
    round_ = make_round(30, 120, 10, 5)
    recovery = peel(round_.model, round_.update)
    assert len(recovery) == 10
    assert set(truths_of(recovery.unproven.samples(), round_.x)) <= {-1}


@pytest.mark.slow
def test_candidates_come_back_in_input_space() -> None:
    body = make_model(48, 60, 3)
    model = nn.Sequential(gp.Normalise([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]), nn.Flatten(), *body)
    x, y = torch.rand(9, 3, 4, 4, dtype=torch.float64), torch.arange(9) % 3
    update = with_noise(round_of(model.double(), x, y).update, 1e-2)
    unproven = peel(model, update, sample_shape=(3, 4, 4)).unproven
    assert unproven.samples().shape == (len(unproven), 3, 4, 4)
    assert unproven.samples(torch.tensor([0])).shape == (1, 3, 4, 4)


class Counting(TorchFunctionMode):
    """Counts what is asked of PyTorch inside a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_before_somebody_asks_and_then_once() -> None:
    round_ = make_round(30, 60, 12, 5)
    unproven = peel(round_.model, round_.update).unproven
    asked = []
    for _ in range(2):
        with Counting() as operations:
            assert len(unproven) > 0
        asked.append(operations.count)
    assert asked[0] > 50
    assert asked[1] < 5


def pairs(factor: float, *, head: float, seed: int, biases: bool = True) -> SmallRound:
    """Eight pictures in two exposures each, with the same label."""
    model = default_model(300, 200, 100, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(head)
        if not biases:
            model.get_parameter("0.bias").zero_()
            model.get_parameter("2.bias").zero_()
    one = torch.rand(8, 300, generator=torch.Generator().manual_seed(seed))
    return round_of(model, torch.cat([one, factor * one]), torch.arange(8).repeat(2))


@pytest.mark.parametrize("seed", first_is_fast(range(4)))
@pytest.mark.parametrize("factor", [1.05, 1.3, 1.5])
def test_two_exposures_of_a_picture_are_no_copies(seed: int, factor: float) -> None:
    round_ = pairs(factor, head=1.0, seed=seed)
    recovery = peel(round_.model, round_.update)
    assert -1 not in truths_of(recovery.samples, round_.x, within=1e-2)
    assert bool((recovery.multiplicities == 1).all())
    assert not recovery.complete


@pytest.mark.parametrize("seed", first_is_fast([0, 1]))
def test_their_means_are_groups_of_two_that_reach_about_as_far_as_they_do(seed: int) -> None:
    round_ = pairs(1.3, head=1.0, seed=seed)
    unproven = peel(round_.model, round_.update).unproven
    credible = (unproven.mismatch < 1e-2) & (unproven.sizes > 0)
    assert int(credible.sum()) >= 8
    assert unproven.sizes[credible].tolist() == [2] * int(credible.sum())
    assert bool((unproven.sizes[~credible & unproven.radii.isinf()] == 0).all())
    # Members are .15 of the darker one away from their mean; the radius is a bound.
    assert bool(((unproven.radii[credible] > 0.1) & (unproven.radii[credible] < 1.0)).all())
    for mean in unproven.samples(credible.nonzero()[:, 0]):
        along = torch.cosine_similarity(mean[None], round_.x.double())
        assert float(along.max()) > 0.9999


@pytest.mark.parametrize("seed", first_is_fast(range(4)))
def test_where_no_neuron_sees_the_difference_nothing_is_certified(seed: int) -> None:
    # Without biases both exposures fire alike, and with so small a head the tail is linear.
    round_ = pairs(1.5, head=0.01, seed=seed, biases=False)
    recovery = peel(round_.model, round_.update)
    assert len(recovery) == 0
    assert recovery.share is None
    assert not recovery.complete
    assert recovery.batch_size.proven is None
    # What a server sees all the same is every picture, at some brightness.
    unproven = recovery.unproven
    best = unproven.samples((unproven.mismatch < 1e-3).nonzero()[:, 0])
    along = torch.stack([torch.cosine_similarity(row[None], round_.x[:8].double()) for row in best])
    assert bool((along.amax(1) > 0.999).all())


@pytest.mark.parametrize("head", [0.1, 0.02])
@pytest.mark.slow
def test_a_cascade_by_a_guess_certifies_nobody_and_is_read(head: float) -> None:
    # Forty-eight threes: what one of them weighs cannot be proven with so small a head.
    digits = load("digits")
    threes = (torch.tensor(digits.y_train) == 3).nonzero()[:48, 0]
    x = torch.tensor(digits.x_train).float().flatten(1)[threes]
    model = default_model(64, 300, 10, seed=1)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(head)
    found = gp.audit(model, x, torch.full((48,), 3))
    assert found.recovery.share is None
    assert len(found.recovery) == found.score.recovered == 0
    assert found.recovery.batch_size.proven is None
    assert not found.recovery.complete
    assert found.score.read >= 45
    # Many of them come from rounds of the cascade: a single look shows fewer.
    assert len(single_look(found.update, x, within=1e-2)) < 20


@pytest.mark.parametrize(("features", "certified"), [(40, True), (8, False)])
@pytest.mark.slow
def test_two_classes_in_few_digits_need_the_structure(features: int, *, certified: bool) -> None:
    # All gradients are parallel there: the equations are one.
    found = 0
    for seed in range(3):
        round_ = make_round(features, 200, 12, 2, seed=seed, dtype=torch.float32)
        recovery = peel(round_.model, round_.update)
        assert all(Evidence.STRUCTURE in kinds for kinds in recovery.evidence)
        isolated = set(round_.exposure.isolated.nonzero()[:, 0].tolist())
        assert isolated <= readable(recovery, round_.x)
        found += len(recovery)
    assert (found > 0) == certified


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_empty_picture_more_than_once_is_a_group_with_a_radius(dtype: torch.dtype) -> None:
    x, y = make_batch(24, 6, 4)
    x[0] = 0.0
    round_ = round_of(
        make_model(24, 120, 4).to(dtype),
        torch.cat([x, x[:1], x[:1]]),
        torch.cat([y, y[:1], y[:1]]),
    )
    recovery = peel(round_.model, round_.update)
    assert -1 not in truths_of(recovery.samples, x, within=1e-3)
    unproven = recovery.unproven
    assert not bool(unproven.radii.isnan().any())
    assert not bool(unproven.samples().isnan().any())
    assert 0 in readable(recovery, x)


def test_noise_takes_the_proof_and_leaves_the_picture() -> None:
    round_ = make_round(60, 200, 8, 6)
    found = gp.audit(round_.model, round_.x, round_.y, client=gp.Client(noise=3e-3))
    assert found.score.false_certificates == 0
    assert found.score.recovered < found.score.read == 8


def test_without_a_loss_candidates_are_read_too() -> None:
    round_ = make_round(24, 40, 6)
    recovery = peel(round_.model, replace(round_.update, batch_size=None), knows_tail=False)
    assert len(recovery) == 0
    isolated = set(round_.exposure.isolated.nonzero()[:, 0].tolist())
    assert isolated
    assert isolated <= readable(recovery, round_.x)
