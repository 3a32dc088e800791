"""Samples that stand in a batch more than once come back once, with all their labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder import Recovery, peel
from gradpeel.exposure import Exposure
from gradpeel.losses import CrossEntropy
from gradpeel.signals import contributions, signals
from gradpeel.target import split
from support import SmallRound, make_batch, make_model, readable, recovered, round_of, truths_of


def firsts(round_: SmallRound, least: float) -> tuple[set[int], set[int]]:
    """First copies that peeling reaches; and those of them that leave a trace in the update."""
    exposed: Exposure = round_.exposure
    strength = signals(
        contributions(split(round_.model).to(torch.float64), round_.x, round_.y, exposed.copies),
        exposed,
    )
    reached = set(exposed.copies[exposed.reached].tolist())
    return reached, {i for i in reached if float(strength[i]) > least}


@st.composite
def crowded(draw: st.DrawFn, *, fewest: int = 2, neurons: int | None = None) -> SmallRound:
    """A round whose samples stand in it again and again, with the same labels or others.

    One of them stands there once.
    """
    classes, batch = draw(st.integers(2, 6)), draw(st.integers(fewest, 7))
    features, seed = draw(st.sampled_from([24, 60])), draw(st.integers(0, 1000))
    model = make_model(features, neurons or draw(st.sampled_from([90, 400])), classes, seed=seed)
    x, y = make_batch(features, batch, classes, seed=seed)
    again = draw(st.lists(st.integers(0, batch - 2), min_size=1, max_size=5))
    labels = [draw(st.sampled_from([int(y[i]), *range(classes)])) for i in again]
    order = draw(st.permutations(range(batch + len(again))))
    x, y = torch.cat([x, x[again]])[order], torch.cat([y, torch.tensor(labels)])[order]
    return round_of(model, x, y)


@pytest.mark.slow
@settings(max_examples=60)
@given(crowded())
def test_every_distinct_sample_comes_back_once_with_all_its_labels(round_: SmallRound) -> None:
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_)
    reached, clear = firsts(round_, 1e-9)
    if round_.model[-1].out_features == 2:
        # A gradient of two classes is one number: copies are not told from samples that lie apart.
        read = readable(recovery, round_.x)
        assert found <= reached
        assert clear <= read
        return
    assert clear <= found <= reached
    # Labels that nobody could count are unknown, not wrong.
    counted = recovery.multiplicities > 0
    assert bool(counted.all()) or clear < reached
    if found == set(round_.exposure.copies.tolist()) and bool(counted.all()):
        assert recovery.complete
        assert recovery.found == len(round_.x)
        assert int(recovery.count_labels(6).sum()) == len(round_.x)


@settings(max_examples=10)
@given(crowded(), st.sampled_from([None, 1, -1]))
@pytest.mark.slow
def test_nor_does_it_matter_that_nobody_says_how_many(round_: SmallRound, off: int | None) -> None:
    size = None if off is None else len(round_.x) + off
    # A law of peeling. The row cascade learns what one sample weighs from what it has solved for,
    # and where gradients are all but zero a stated size may keep it from certifying that.
    recovery = peel(round_.model, replace(round_.update, batch_size=size), effort=0.0)
    known = peel(round_.model, round_.update, effort=0.0)
    # Where everybody who is found is there twice, nobody tells: then they count as one each.
    assert truths_of(recovery.samples, round_.x) == truths_of(known.samples, round_.x)
    assert -1 not in truths_of(recovery.samples, round_.x)
    assert recovery.label_counts == known.label_counts
    searched = peel(round_.model, replace(round_.update, batch_size=size))
    assert -1 not in truths_of(searched.samples, round_.x)


def test_everybody_twice_is_the_same_update_as_everybody_once() -> None:
    model = make_model(60, 400, 5)
    x, y = make_batch(60, 4, 5)
    update = round_of(model, torch.cat([x, x]), torch.cat([y, y])).update
    for size in (8, 4, None):
        recovery = peel(model, replace(update, batch_size=size))
        assert sorted(truths_of(recovery.samples, x)) == [0, 1, 2, 3]
        assert recovery.batch_size.by_weight == 4
    assert peel(model, replace(update, batch_size=4)).complete


@settings(max_examples=20)
@given(crowded(fewest=5, neurons=600))
@pytest.mark.slow
def test_without_tail_and_labels_they_come_back_once(round_: SmallRound) -> None:
    recovery = peel(round_.model, round_.update, knows_tail=False)
    found = recovered(recovery, round_)
    clear = firsts(round_, 1e-9)[1]
    if round_.model[-1].out_features == 2:
        # All loss gradients are parallel: a narrow layer does not tell samples from mixtures.
        assert clear <= readable(recovery, round_.x)
    else:
        assert clear <= found
    assert not bool(recovery.multiplicities.any())
    assert recovery.rank == len(round_.exposure.distinct)


def copies(
    *,
    times: int,
    hidden: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    loss: CrossEntropy | None = None,
) -> SmallRound:
    """A wide round whose first three samples stand in it so many times, with shifted labels."""
    model = make_model(60, 400, 5, hidden, seed=seed).to(dtype)
    x, y = make_batch(60, 8, 5, seed=seed)
    again: list[Tensor] = [x[:3]] * (times - 1)
    labels = [(y[:3] + shift // 2) % 5 for shift in range(1, times)]
    return round_of(
        model, torch.cat([x, *again]), torch.cat([y, *labels]), loss=loss or CrossEntropy()
    )


def everybody(recovery: Recovery, round_: SmallRound, within: float = 1e-6) -> None:
    assert recovered(recovery, round_, within=within) == set(range(8))
    times = round_.exposure.multiplicities
    truths = truths_of(recovery.samples, round_.x, within=within)
    assert recovery.multiplicities.tolist() == times[truths].tolist()


@pytest.mark.parametrize("times", [2, 3, 5, 8])
@pytest.mark.parametrize("hidden", [(), (30,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_however_many_and_however_deep(
    times: int, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    round_ = copies(times=times, hidden=hidden, dtype=dtype, seed=times)
    everybody(peel(round_.model, round_.update), round_, within=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_bias_equation_alone_makes_no_false_ones(seed: int) -> None:
    # Copies are told by their gradient at the next layer; without it they may be missed.
    round_ = copies(times=3, seed=seed)
    recovery = peel(round_.model, round_.update, use_next_layer=False)
    truths = truths_of(recovery.samples, round_.x)
    assert -1 not in truths
    assert len(set(truths)) == len(truths)
    assert {3, 4, 5, 6, 7} <= set(truths)


@pytest.mark.parametrize("loss", [CrossEntropy(label_smoothing=0.1)])
def test_with_other_losses(loss: CrossEntropy) -> None:
    round_ = copies(times=3, loss=loss)
    everybody(peel(round_.model, round_.update, loss=loss), round_)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.slow
def test_with_two_hundred_class_weights_and_nobody_says_how_many(dtype: torch.dtype) -> None:
    weights = torch.linspace(1.0, 2.0, 200).double().tolist()
    loss = CrossEntropy(class_weights=tuple(weights))
    model = make_model(60, 400, 200).to(dtype)
    x, y = make_batch(60, 8, 200)
    for label in (int(y[0]), (int(y[0]) + 1) % 200):
        labels = torch.cat([y, torch.tensor([label])])
        round_ = round_of(model, torch.cat([x, x[:1]]), labels, loss=loss)
        recovery = peel(model, replace(round_.update, batch_size=None), loss=loss)
        everybody(recovery, round_, within=1e-3)
        assert recovery.found == 9
        assert recovery.complete


@pytest.mark.parametrize("times", [9, 20, 31])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("stated", [True, False])
def test_any_number_of_copies(times: int, dtype: torch.dtype, *, stated: bool) -> None:
    model = make_model(60, 400, 5).to(dtype)
    x, y = make_batch(60, 6, 5)
    round_ = round_of(model, torch.cat([x, *[x[:1]] * times]), torch.cat([y, *[y[:1]] * times]))
    size = len(round_.x) if stated else None
    recovery = peel(model, replace(round_.update, batch_size=size))
    assert recovered(recovery, round_, within=1e-3) == set(range(6))
    assert sorted(recovery.multiplicities.tolist()) == [1] * 5 + [times + 1]
    assert recovery.found == 6 + times
    assert recovery.complete


@pytest.mark.parametrize("times", [33, 41])
def test_a_crowd_of_copies_is_not_counted_wrongly(times: int) -> None:
    model = make_model(60, 400, 5)
    x, y = make_batch(60, 6, 5)
    more = torch.cat([x, x[:1].expand(times - 1, -1)]), torch.cat([y, y[:1].expand(times - 1)])
    recovery = peel(model, round_of(model, *more).update)
    truths = truths_of(recovery.samples, x)
    assert -1 not in truths
    counted = dict(zip(truths, recovery.multiplicities.tolist(), strict=True))
    assert counted.get(0, times) == times


def test_copies_of_one_sample_alone_are_read_but_not_counted() -> None:
    # Nobody else is there to tell what one of them weighs.
    model = make_model(60, 400, 5)
    x, _ = make_batch(60, 1, 5)
    round_ = round_of(model, x.expand(5, -1), torch.tensor([1, 1, 4, 2, 1]))
    recovery = peel(model, round_.update)
    assert recovered(recovery, round_) <= {0}
    assert not recovery.complete or recovery.found == 5
    assert 0 in readable(recovery, x)


def test_everybody_twice_is_not_complete_with_half_of_them() -> None:
    model = make_model(60, 400, 5)
    x, y = make_batch(60, 4, 5)
    recovery = peel(model, round_of(model, torch.cat([x, x]), torch.cat([y, y])).update)
    assert not recovery.complete or recovery.found == 8
