"""Updates after several local steps (FedAvg): sums of gradients at different weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gradpeel as gp
from gradpeel.decoder import peel
from gradpeel.decoder.recovery import Stage
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.finding import find_rows, sparsest
from gradpeel.decoder.rows.quotients import read_quotients
from gradpeel.decoder.rows.settling import settle
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.target import split
from gradpeel.training import LocalTraining
from support import (
    SmallRound,
    default_model,
    make_batch,
    make_model,
    readable,
    recovered,
    round_of,
    truths_of,
)

TRAININGS: list[dict[str, Any]] = [
    {"lr": 0.01, "local_steps": 5},
    {"lr": 0.1, "local_steps": 10},
    {"lr": 0.1, "local_epochs": 2, "local_batch_size": 8},
    {"lr": 0.05, "local_steps": 4, "momentum": 0.9},
    {"lr": 0.05, "local_steps": 4, "weight_decay": 0.01},
]

SLOW = pytest.mark.slow


def crowded(
    batch: int = 30,
    *,
    seed: int = 0,
    centre: float = 0.0,
    dtype: torch.dtype = torch.float64,
    neurons: int = 300,
    classes: int = 6,
    **client: Any,
) -> SmallRound:
    """A batch of which hardly any neuron isolates a sample, after local training."""
    generator = torch.Generator().manual_seed(seed)
    x = centre + torch.randn(batch, 60, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (batch,), generator=generator)
    model = default_model(60, neurons, classes, seed=seed, dtype=dtype)
    return round_of(model, x.to(dtype), y, **client)


def residual_of(round_: SmallRound) -> Residual:
    return Residual(
        split(round_.model).for_decoding(torch.device("cpu")), round_.update, use_next=False
    )


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.slow
def test_all_samples_come_back(training: dict[str, Any]) -> None:
    round_ = crowded(**training)
    assert round_.exposure.peeling_bound < 0.2
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_, within=1e-6) == set(range(30))
    assert Stage.ROWS in recovery.stages
    found = recovery.labels.tolist()
    assert found == round_.y[truths_of(recovery.samples, round_.x)].tolist()


def test_what_the_next_layer_sends_back_leads_to_rows_that_silence_does_not() -> None:
    round_ = crowded(40, neurons=200, lr=0.01, local_steps=5)
    assert round_.exposure.peeling_bound == 0.0
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_, within=1e-6) == set(range(40))
    only = {name: round_.update.gradients[name] for name in ("0.weight", "0.bias")}
    alone = replace(round_.update, gradients=only)
    # It is used as it was sent; how it changed is not needed.
    assert recovered(peel(round_.model, alone), round_, within=1e-6) == set(range(40))
    assert not len(peel(round_.model[:2], alone, knows_tail=False, effort=0.1))


def test_samples_that_are_alike_come_back_whole() -> None:
    # Peeled first, three of them come back: what these leave hides the rows of the others.
    generator = torch.Generator().manual_seed(0)
    centre = torch.rand(60, generator=generator).double()
    x = (centre + 0.3 * torch.randn(24, 60, generator=generator).double()).clamp(0, 1)
    y = torch.randint(6, (24,), generator=generator)
    model = default_model(60, 300, 6, seed=0, dtype=torch.float64)
    round_ = round_of(model, x, y, lr=0.05, local_steps=5)
    assert round_.exposure.peeling_bound == 1.0
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_, within=1e-6) == set(range(24))


@pytest.mark.slow
def test_labels_are_left_out_where_they_cannot_be_read() -> None:
    training = TRAININGS[0]
    round_ = crowded(**training)
    # The next layer may not be used; or there are no labels; or it was not sent; or it is not last.
    unknown: list[dict[str, Any]] = [{"knows_tail": False}, {"loss": gp.MeanSquaredError()}]
    for setting in unknown:
        recovery = peel(round_.model, round_.update, **setting)
        assert len(recovery) == 30
        assert recovery.labels.tolist() == [-1] * 30
    only = {name: round_.update.gradients[name] for name in ("0.weight", "0.bias")}
    recovery = peel(round_.model, replace(round_.update, gradients=only))
    assert recovery.labels.tolist() == [-1] * 30
    deep = gp.local_update(
        model := make_model(60, 300, 6, (40,)), round_.x, round_.y, gp.Client(**training)
    )
    assert set(peel(model, deep).labels.tolist()) <= {-1}


def test_copies_with_different_labels_get_none() -> None:
    x, y = crowded().x, crowded().y
    x[7], y[7] = x[3], (y[3] + 1) % 6
    model = default_model(60, 300, 6, seed=0, dtype=torch.float64)
    round_ = round_of(model, x, y, **TRAININGS[0])
    recovery = peel(round_.model, round_.update)
    truths = truths_of(recovery.samples, x)
    assert sorted(truths) == sorted(set(range(30)) - {7})
    for label, truth in zip(recovery.labels.tolist(), truths, strict=True):
        assert label == (-1 if truth == 3 else y[truth])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_in_float32_all_are_readable(seed: int) -> None:
    # Two samples that differ by less than the roundings of the weights would look like one.
    round_ = crowded(dtype=torch.float32, seed=seed, lr=0.1, local_steps=5)
    recovery = peel(round_.model, round_.update)
    assert len(recovery) == 0
    assert readable(recovery, round_.x, within=1e-2) == set(range(30))


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=SLOW)])
@pytest.mark.parametrize("classes", [pytest.param(2, marks=SLOW), pytest.param(3, marks=SLOW), 10])
@pytest.mark.parametrize("pair", ["exposure", "offset", "twin"])
@pytest.mark.parametrize("effort", [0.05, pytest.param(1.0, marks=SLOW)])
@pytest.mark.slow
def test_pairs_that_fire_alike_are_not_taken_for_one(
    effort: float, pair: str, classes: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(10, 400, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (10,), generator=generator)
    near = x + 0.03 * torch.randn(10, 400, generator=generator)
    other = {"exposure": 1.3 * x, "offset": x + 0.05, "twin": near}[pair]
    model = default_model(400, 250, classes, seed=1, dtype=dtype)
    round_ = round_of(model, torch.cat([x, other]).to(dtype), y.repeat(2), lr=0.5, local_steps=2)
    recovered(peel(round_.model, round_.update, effort=effort), round_, within=1e-3)


def test_samples_that_a_neuron_isolates_need_no_rows() -> None:
    model = default_model(40, 400, 4, seed=0, dtype=torch.float64)
    round_ = round_of(model, *make_batch(40, 8, 4), lr=0.02, local_steps=3)
    assert round_.exposure.peeling_bound == 1.0
    recovery = peel(round_.model, round_.update, effort=0.0)
    assert recovered(recovery, round_, within=1e-6) == set(range(8))


def test_one_step_is_decoded_as_the_gradient() -> None:
    plain, trained = crowded(), crowded(lr=0.1, local_steps=1)
    assert not residual_of(trained).of_several_steps
    recovery = peel(trained.model, trained.update)
    assert recovered(recovery, trained, within=1e-6) == set(range(30))
    assert sorted(recovery.labels.tolist()) == sorted(plain.y.tolist())


@pytest.mark.parametrize("lr", [1.0, 1e-1, 1e-2])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_a_float32_difference_has_the_roundings_of_the_weights(
    lr: float, weight_decay: float
) -> None:
    round_ = crowded(
        16, dtype=torch.float32, lr=lr, local_steps=1, weight_decay=weight_decay, neurons=250
    )
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_, within=0.02) == set(range(16))


@pytest.mark.parametrize("stated", [8, 16, None])
@pytest.mark.parametrize("lr", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("pair", ["exposure", "offset"])
@pytest.mark.slow
def test_a_wrong_size_does_not_make_pairs_samples(lr: float, pair: str, stated: int | None) -> None:
    # Their means weigh what one sample of a batch of eight would weigh.
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 400, generator=generator), torch.randint(10, (8,), generator=generator)
    other = 1.3 * x if pair == "exposure" else x + 0.05
    model = default_model(400, 300, 10, seed=0, dtype=torch.float32)
    round_ = round_of(model, torch.cat([x, other]), y.repeat(2), lr=lr, local_steps=1)
    recovery = peel(round_.model, replace(round_.update, batch_size=stated), effort=0.0)
    recovered(recovery, round_, within=0.02)
    assert not recovery.complete


def test_pre_activations_are_the_larger_of_both_ends() -> None:
    round_ = crowded(lr=0.1, local_steps=10)
    residual = residual_of(round_)
    weight, bias = round_.model.get_parameter("0.weight"), round_.model.get_parameter("0.bias")
    with torch.no_grad():
        start = round_.x @ weight.T + bias
        end = start - 0.1 * (
            round_.x @ round_.update.gradients["0.weight"].T + round_.update.gradients["0.bias"]
        )
        z = residual.pre_activations(round_.x)
        torch.testing.assert_close(z, torch.maximum(start, end))
        firing = residual.firing(round_.x, z, torch.zeros(len(z)).double())
    assert not firing.doubt.any()
    assert not (firing.firm & ~firing.fires).any()
    # Where it may not have fired at all it hardly ever has, and where it fires for certain it has.
    grid = round_.exposure.grid.T
    ends = (start > 0) & (end > 0)
    assert (grid & ~firing.fires).double().mean() < 0.01
    assert (firing.firm & ~ends).sum() == 0


def test_a_sum_of_rows_is_replaced_by_what_its_sample_gives() -> None:
    round_ = crowded(lr=0.05, local_steps=4)
    residual = residual_of(round_)
    with torch.no_grad():
        space = RowSpace.of(residual)
        assert space is not None
        rows = find_rows(
            residual,
            space,
            weight=None,
            change=None,
            directions=lambda z: z.new_zeros(len(z), 0, 0),
            effort=1.0,
        )
        assert len(rows) == 30
        mixed = rows.rows.clone()
        mixed[0] = torch.nn.functional.normalize(mixed[0] + 0.05 * mixed[1], dim=0)
        found, settled = settle(replace(rows, rows=mixed), residual)
    assert found is not None
    assert float((settled.rows * rows.rows).sum(1).abs().min()) > 1 - 1e-9
    assert set(truths_of(found.samples, round_.x)) == set(range(30))


@pytest.mark.slow
def test_rows_of_alike_samples_follow_from_the_neurons_that_isolate_them() -> None:
    round_ = crowded(12, centre=2.0, lr=0.01, local_steps=5)
    residual = residual_of(round_)
    space = RowSpace.of(residual)
    assert space is not None
    found = read_quotients(residual, space)
    truth = torch.linalg.lstsq(round_.x.T, residual.sent.rows.T).solution[:, space.live]
    cosines = found.rows @ torch.nn.functional.normalize(truth / space.error).T
    assert set(cosines.abs().argmax(1).tolist()) == set(range(12))
    assert bool((cosines.abs().amax(1) > 1.0 - 1e-9).all())


def test_the_sparsest_rows_stay() -> None:
    rows = torch.eye(4, 12).double()
    both = torch.nn.functional.normalize(rows[0] + rows[1], dim=0)[None]
    kept = sparsest(torch.cat([both, rows]), torch.full((5,), 1e-12).double())
    assert kept.tolist() == [1, 2, 3, 4]


@pytest.mark.slow
def test_an_audit_says_how_far_it_came() -> None:
    round_ = crowded()
    client = gp.Client(lr=0.1, local_steps=5, local_batch_size=10)
    audit = gp.audit(round_.model, round_.x, round_.y, client=client)
    assert audit.score.recovered == audit.score.read == 30
    assert audit.score.false_certificates == audit.score.inexact_certificates == 0
    assert audit.score.peeling_bound == 0
    assert audit.update.training == LocalTraining(0.1, 5)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    batch=st.integers(2, 40),
    neurons=st.sampled_from([150, 300]),
    classes=st.sampled_from([2, 5, 20]),
    centre=st.sampled_from([0.0, 0.5, 2.0]),
    double=st.booleans(),
    lr=st.sampled_from([0.01, 0.1, 0.5]),
    steps=st.integers(2, 12),
    minibatch=st.sampled_from([None, 5]),
    momentum=st.sampled_from([0.0, 0.9]),
    seed=st.integers(0, 1000),
)
def test_never_anything_false(
    *,
    batch: int,
    neurons: int,
    classes: int,
    centre: float,
    double: bool,
    lr: float,
    steps: int,
    minibatch: int | None,
    momentum: float,
    seed: int,
) -> None:
    round_ = crowded(
        batch,
        seed=seed,
        centre=centre,
        dtype=torch.float64 if double else torch.float32,
        neurons=neurons,
        classes=classes,
        lr=lr,
        local_steps=steps,
        local_batch_size=minibatch,
        momentum=momentum,
    )
    recovered(peel(round_.model, round_.update), round_, within=2e-2)
