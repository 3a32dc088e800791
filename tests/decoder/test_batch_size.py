"""The scale of an update is not known: its samples do not depend on it, its batch size does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradpeel.decoder import BatchSize, peel
from gradpeel.losses import CrossEntropy
from gradpeel.noise import with_noise
from support import (
    SmallRound,
    default_model,
    make_batch,
    make_model,
    make_round,
    recovered,
    round_of,
    scaled,
    truths_of,
)

FACTORS = st.one_of(st.floats(1e-3, 1e3), st.sampled_from([1e-3, 0.5, 2.0, 1e3]))
STATED = st.sampled_from(["right", "not at all", "one less", "one more", "a hundred times"])


def stating(size: int, how: str) -> int | None:
    """A batch size as an update states it."""
    wrong = {"right": size, "one less": max(1, size - 1), "one more": size + 1}
    return {**wrong, "a hundred times": 100 * size, "not at all": None}[how]


ROUNDS = st.builds(
    make_round,
    features=st.sampled_from([24, 60]),
    neurons=st.sampled_from([60, 120]),
    batch=st.integers(1, 12),
    classes=st.integers(3, 8),
    hidden=st.sampled_from([(), (9,)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)


@settings(max_examples=25)
@given(ROUNDS, FACTORS, STATED)
@pytest.mark.slow
def test_the_same_samples_whatever_the_scale_and_the_stated_size(
    round_: SmallRound, factor: float, how: str
) -> None:
    plain = peel(round_.model, round_.update)
    update = replace(scaled(round_.update, factor), batch_size=stating(len(round_.x), how))
    other = peel(round_.model, update)
    found = recovered(other, round_, within=1e-3)
    assert found == recovered(plain, round_, within=1e-3)
    if plain.share is not None:
        assert other.share == pytest.approx(factor * plain.share, rel=1e-4)
    # How many there are follows from what is certified, not from what is said.
    size = other.batch_size
    assert size.least == other.found <= len(round_.x)
    assert size.stated == update.batch_size
    assert size.proven in {None, len(round_.x)}
    assert size.is_refuted == (size.stated is not None and size.stated < other.found)
    assert all(int(number) >= 0 for number in re.findall(r"-?\d+", other.stopped))
    assert size.value is None or size.value >= other.found


@pytest.mark.parametrize("factor", [1e-3, 0.037, 2.0, 7.3, 1e3])
@pytest.mark.slow
def test_as_pytorch_starts_a_network(factor: float) -> None:
    model = default_model(300, 200, 10, seed=5)
    x, y = make_batch(300, 24, 10)
    round_ = round_of(model, x, y)
    for size in (24, None, 40, 5):
        update = replace(scaled(round_.update, factor), batch_size=size)
        recovery = peel(model, update)
        assert recovered(recovery, round_, within=1e-3) == set(range(24))
        assert recovery.batch_size.proven is None
        assert not recovery.complete


def test_proven_takes_a_statement_the_weight_and_the_whole_update() -> None:
    round_ = make_round(60, 200, 10, 6)
    size = peel(round_.model, round_.update).batch_size
    assert size == BatchSize(stated=10, by_weight=10, least=10, proven=10)
    assert size.value == 10
    assert size.is_confirmed
    assert not size.is_refuted
    # Nobody states it: then the weight of a sample is a hint, as the loss may have been scaled.
    size = peel(round_.model, replace(round_.update, batch_size=None)).batch_size
    assert size == BatchSize(stated=None, by_weight=10, least=10, proven=None)
    assert size.value == 10
    assert not size.is_confirmed
    assert not size.is_refuted
    # The weight says otherwise.
    size = peel(round_.model, scaled(round_.update, 0.5)).batch_size
    assert size == BatchSize(stated=10, by_weight=20, least=10, proven=None)
    assert size.value == 10
    assert not size.is_confirmed
    # The update is not whole.
    part = make_round(80, 300, 50, 6)
    recovery = peel(part.model, part.update, effort=0.0)
    assert 1 < recovery.found < 50
    assert recovery.batch_size.proven is None
    assert recovery.batch_size.is_confirmed


def test_more_than_stated_refute_it() -> None:
    round_ = make_round(60, 200, 10, 6)
    recovery = peel(round_.model, replace(round_.update, batch_size=7))
    size = recovery.batch_size
    assert size.is_refuted
    assert not size.is_confirmed
    assert size.value == 10
    assert recovery.warnings == ("batch_size=7 is stated, but 10 samples are certified",)
    # In a sum the weight of a sample says nothing of the size.
    total = make_round(60, 200, 10, 6, reduction="sum")
    size = peel(total.model, replace(total.update, batch_size=7)).batch_size
    assert size.is_refuted
    assert size.by_weight is None
    assert size.value is None


def test_a_size_that_the_weight_contradicts_is_told() -> None:
    round_ = make_round(60, 200, 10, 6)
    recovery = peel(round_.model, replace(round_.update, batch_size=13))
    (warning,) = recovery.warnings
    assert warning == (
        "batch_size=13 is stated, but the weight of one sample suggests 10: either the stated size "
        "is wrong or the update was scaled"
    )
    assert recovery.batch_size.proven is None
    assert not recovery.batch_size.is_refuted


@settings(max_examples=60)
@given(
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
    st.integers(0, 50),
    st.booleans(),
)
def test_what_a_batch_size_says_of_itself(
    stated: int | None, by_weight: int | None, least: int, whole: bool
) -> None:
    proven = least if whole and least else None
    size = BatchSize(stated, by_weight, least, proven)
    assert size.value in {stated, by_weight, proven, None}
    assert size.value is None or size.value >= least
    if proven is not None:
        assert size.value == proven
    if size.is_refuted:
        assert size.value != stated
    assert not (size.is_refuted and size.is_confirmed and proven is None and least <= (stated or 0))


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("how", ["right", "not at all", "one more"])
def test_a_scaled_update_is_never_complete(factor: float, how: str) -> None:
    round_ = make_round(60, 200, 8, 6)
    update = replace(scaled(round_.update, factor), batch_size=stating(8, how))
    recovery = peel(round_.model, update)
    assert recovery.found == 8
    assert recovery.explained == pytest.approx(1.0)
    if factor != 1.0:
        assert not recovery.complete
        assert recovery.batch_size.proven is None


def test_nor_is_one_that_misses_a_sample_without_gradient() -> None:
    model = make_model(24, 400, 4)
    x, y = make_batch(24, 8, 4)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(1e6)
    y[0] = model(x[:1]).argmax()
    update = round_of(model, x, y).update
    for size in (8, None, 7):
        recovery = peel(model, replace(update, batch_size=size))
        assert -1 not in truths_of(recovery.samples, x)
        assert recovery.found < 8
        assert not recovery.complete
        assert recovery.batch_size.proven is None
    # Seven eighths of the weight are there: as a mean over seven it was scaled.
    assert recovery.faint


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("use_next_layer", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_in_any_dtype_with_and_without_the_next_layer(
    seed: int, dtype: torch.dtype, *, use_next_layer: bool
) -> None:
    round_ = make_round(60, 200, 10, 6, seed=seed, dtype=dtype)
    for size in (None, 13):
        update = replace(round_.update, batch_size=size)
        found = peel(round_.model, update, use_next_layer=use_next_layer)
        assert found.batch_size.by_weight == 10
        assert found.share == pytest.approx(0.1, rel=1e-4)
        assert recovered(found, round_, within=1e-3) == set(range(10))


@pytest.mark.parametrize(
    ("features", "neurons", "batch", "classes", "seed"), [(36, 56, 4, 5, 353), (60, 60, 12, 2, 12)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.slow
def test_a_share_that_is_told_is_that_of_a_sample(  # noqa: PLR0917
    features: int, neurons: int, batch: int, classes: int, seed: int, dtype: torch.dtype
) -> None:
    # Behind so narrow a layer mixtures have the direction of a label, and agree on a weight.
    round_ = make_round(features, neurons, batch, classes, (9,), seed=seed, dtype=dtype)
    recovery = peel(round_.model, round_.update)
    assert -1 not in truths_of(recovery.samples, round_.x, within=1e-2)
    assert recovery.share is None or recovery.share == pytest.approx(1 / batch, rel=1e-3)


@pytest.mark.parametrize("sigma", [1e-8, 1e-6])
@pytest.mark.slow
def test_under_noise(sigma: float) -> None:
    for seed in range(3):
        round_ = make_round(60, 200, 10, 6, seed=seed)
        update = with_noise(replace(round_.update, batch_size=None), sigma, seed=seed)
        found = peel(round_.model, update)
        assert found.batch_size.by_weight == 10
        assert recovered(found, round_, within=0.05) == set(range(10))


def test_copies_count_each_by_itself() -> None:
    round_ = make_round(40, 120, 7)
    x, y = (torch.cat([part, part[:3], part[:1]]) for part in (round_.x, round_.y))
    more = round_of(round_.model, x, y)
    found = peel(more.model, replace(more.update, batch_size=None))
    assert recovered(found, more) == set(range(7))
    assert found.batch_size.by_weight == found.batch_size.least == found.found == 11
    assert found.complete


def test_the_scale_of_a_sum_says_nothing_of_the_batch_size() -> None:
    round_ = make_round(40, 120, 7, reduction="sum")
    found = peel(round_.model, replace(round_.update, batch_size=None))
    assert recovered(found, round_) == set(range(7))
    assert found.batch_size == BatchSize(stated=None, by_weight=None, least=7, proven=None)
    assert repr(found).startswith("Recovery(7 samples in ")
    assert not found.complete
    assert peel(round_.model, round_.update).batch_size.proven == 7


def test_where_nothing_tells_nothing_is_said() -> None:
    model = make_model(24, 40, 4)
    with torch.no_grad():
        model.get_parameter("0.bias").add_(50.0)
    x, y = make_batch(24, 30, 4)
    found = peel(model, replace(round_of(model, x, y).update, batch_size=None))
    assert len(found) == 0
    assert found.share is None
    assert found.batch_size == BatchSize(stated=None, by_weight=None, least=0, proven=None)
    assert found.batch_size.value is None


WEIGHTS = (1.0, 0.2, 3.0, 1.5)
LOSSES = {
    "smoothed": CrossEntropy(label_smoothing=0.2),
    "weighted": CrossEntropy(class_weights=WEIGHTS),
    "both": CrossEntropy(label_smoothing=0.1, class_weights=WEIGHTS),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("hidden", [(), (20,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_declared_losses(
    loss: str, reduction: str, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    model = make_model(40, 120, 4, hidden).to(dtype)
    x, y = make_batch(40, 7, 4)
    round_ = round_of(model, x, y, loss=LOSSES[loss], reduction=reduction)
    for size in (7, None):
        found = peel(model, replace(round_.update, batch_size=size), loss=LOSSES[loss])
        assert recovered(found, round_, within=1e-3) == set(range(7))
        assert bool((found.multiplicities == 1).all())
        if size is not None and not (loss == "both" and reduction == "mean"):
            assert found.complete
        elif loss == "smoothed" and reduction == "mean":
            assert found.batch_size.value == 7


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.slow
def test_an_undeclared_loss_makes_no_false_certificate(loss: str) -> None:
    for seed in range(3):
        model = make_model(40, 120, 4, seed=seed)
        x, y = make_batch(40, 7, 4, seed=seed)
        round_ = round_of(model, x, y, loss=LOSSES[loss])
        # Samples may come back, and their labels: but one that counts three times looks like three.
        found = peel(model, round_.update)
        assert -1 not in truths_of(found.samples, x)


@pytest.mark.slow
def test_behind_a_norm_there_is_no_next_layer_to_ask() -> None:
    body = make_model(40, 120, 5)
    torch.manual_seed(0)
    model = nn.Sequential(body[0], body[1], nn.LayerNorm(120), nn.Linear(120, 5)).double()
    x, y = make_batch(40, 7, 5)
    round_ = round_of(model, x, y)
    for size in (None, 9):
        found = peel(model, replace(round_.update, batch_size=size))
        assert found.batch_size.by_weight == 7
        assert recovered(found, round_) == set(range(7))


def test_a_proven_share_is_that_of_a_sample() -> None:
    round_ = make_round(4, 6, 5, 9, (9,), seed=6808)
    share = peel(round_.model, round_.update).share
    assert share is None or share == pytest.approx(1 / len(round_.x), rel=1e-3)


def test_a_complete_batch_has_as_many_as_it_says() -> None:
    round_ = make_round(60, 300, 12, 5)
    update = replace(round_.update, batch_size=20)
    recovery = peel(round_.model, update)
    assert not recovery.complete or recovery.batch_size.value == recovery.found


def test_a_smoothed_and_weighted_mean_can_be_complete() -> None:
    loss = CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 0.2, 3.0, 1.5))
    model = make_model(40, 120, 4)
    x, y = make_batch(40, 7, 4)
    recovery = peel(model, round_of(model, x, y, loss=loss).update, loss=loss)
    assert recovery.found == 7
    assert recovery.complete


def test_a_crowd_of_copies_is_no_unit() -> None:
    model = make_model(60, 400, 5)
    x, y = make_batch(60, 6, 5)
    batch = torch.cat([x, x[:1].expand(69, -1)]), torch.cat([y, y[:1].expand(69)])
    recovery = peel(model, round_of(model, *batch).update)
    assert recovery.share is None or recovery.share == pytest.approx(1 / 75, rel=1e-3)
