"""The weight of one sample, and with it the batch size, told from the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gradpeel.decoder.batch_size import vote
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradpeel.decoder import Recovery, peel
from gradpeel.decoder.labelling import MOST_COPIES
from gradpeel.losses import CrossEntropy
from gradpeel.noise import with_noise
from gradpeel.update import Update
from support import SmallRound, make_batch, make_model, make_round, recovered, round_of, truths_of
from truth import FirstLook

ROUNDS = st.builds(
    make_round,
    features=st.integers(8, 90),
    neurons=st.integers(30, 90),
    batch=st.integers(1, 14),
    classes=st.integers(2, 10),
    hidden=st.sampled_from([(), (9,)]),
    seed=st.integers(0, 10_000),
)


def without_size(update: Update) -> Update:
    return replace(update, batch_size=None)


@pytest.mark.parametrize("use_next", [True, False])
@pytest.mark.parametrize("hidden", [(), (9,)])
@pytest.mark.parametrize("seed", range(5))
def test_candidates_vote_for_the_share(
    seed: int, hidden: tuple[int, ...], *, use_next: bool
) -> None:
    look = FirstLook(make_round(40, 120, 7, hidden=hidden, seed=seed), use_next=use_next)
    distinct = int(look.genuine.sum())
    assert distinct >= 2
    # Whatever share the backward pass has itself.
    for share in (1.0, 1 / 7, 1e-3):
        backward = replace(look.backward, share=share)
        for whole in (True, False):
            found = vote(look.candidates, look.residual, backward, whole=whole)
            assert found is not None
            assert found.share == pytest.approx(1 / 7, rel=1e-9)
            assert found.voters >= 2


def test_nobody_votes_where_nobody_stands_alone() -> None:
    look = FirstLook(make_round(40, 120, 7))
    mixtures = look.candidates.pick(~look.genuine)
    assert vote(mixtures, look.residual, look.backward, whole=True) is None
    nobody = look.candidates.pick(torch.zeros(len(look.candidates), dtype=torch.bool))
    assert vote(nobody, look.residual, look.backward, whole=True) is None


def alike(one: Recovery, other: Recovery) -> None:
    assert one.sources.tolist() == other.sources.tolist()
    assert one.label_counts == other.label_counts
    torch.testing.assert_close(one.samples, other.samples, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=40)
@given(ROUNDS)
def test_the_same_samples_come_back_without_the_batch_size(round_: SmallRound) -> None:
    known = peel(round_.model, round_.update)
    found = peel(round_.model, without_size(round_.update))
    assert found.stated_batch_size is None
    assert not found.warnings
    recovered(found, round_)
    if len(known) < 2:
        return
    alike(known, found)
    assert found.batch_size == len(round_.x)
    assert found.batch_votes >= 2
    assert found.complete == known.complete


@pytest.mark.slow
@settings(max_examples=40)
@given(ROUNDS, st.sampled_from([-3, -1, 1, 2, 1000]))
def test_a_wrong_batch_size_is_told_and_not_believed(round_: SmallRound, off: int) -> None:
    right = len(round_.x)
    wrong = max(1, right + off)
    known = peel(round_.model, round_.update)
    found = peel(round_.model, replace(round_.update, batch_size=wrong))
    assert -1 not in truths_of(found.samples, round_.x)
    # Two samples must say so before one believes them.
    if wrong == right or int((known.rounds == 1).sum()) < 2:
        return
    if wrong % right == 0 and wrong <= MOST_COPIES * right:
        # Everybody several times in a batch so much larger is the very same update.
        assert set(found.sources.tolist()) <= set(known.sources.tolist())
        assert found.multiplicities.tolist() == [wrong // right] * len(found)
        return
    alike(known, found)
    assert found.batch_size == right
    assert found.stated_batch_size == wrong
    (warning,) = found.warnings
    assert warning.startswith(f"batch_size={wrong} is stated, but the scale of ")
    assert warning.endswith(f" says {right}: decoded with {right}")


def test_a_wrong_batch_size_in_words() -> None:
    round_ = make_round(60, 300, 8, 5, seed=1)
    found = peel(round_.model, replace(round_.update, batch_size=9))
    assert found.warnings == (
        "batch_size=9 is stated, but the scale of 7 candidates says 8: decoded with 8",
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("use_next_layer", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_in_any_dtype_with_and_without_the_next_layer(
    seed: int, dtype: torch.dtype, *, use_next_layer: bool
) -> None:
    round_ = make_round(60, 200, 10, 6, seed=seed, dtype=dtype)
    for update in (without_size(round_.update), replace(round_.update, batch_size=13)):
        found = peel(round_.model, update, use_next_layer=use_next_layer)
        assert found.batch_size == 10
        assert recovered(found, round_, within=1e-3) == set(range(10))


@pytest.mark.parametrize("sigma", [1e-8, 1e-6, 1e-4])
def test_under_noise(sigma: float) -> None:
    for seed in range(3):
        round_ = make_round(60, 200, 10, 6, seed=seed)
        update = without_size(with_noise(round_.update, sigma, seed=seed))
        found = peel(round_.model, update)
        assert found.batch_size == 10
        assert recovered(found, round_, within=0.05) == set(range(10))


def test_copies_count_each_by_itself() -> None:
    round_ = make_round(40, 120, 7)
    x, y = (torch.cat([part, part[:3], part[:1]]) for part in (round_.x, round_.y))
    more = round_of(round_.model, x, y)
    found = peel(more.model, without_size(more.update))
    assert recovered(found, more) == set(range(7))
    assert found.batch_size == 11
    assert found.complete
    assert found.found == 11


def test_the_scale_of_a_sum_says_nothing_of_the_batch_size() -> None:
    round_ = make_round(40, 120, 7, reduction="sum")
    found = peel(round_.model, without_size(round_.update))
    assert recovered(found, round_) == set(range(7))
    assert found.batch_votes == 0
    # But what reproduces the whole update is the whole batch.
    assert found.batch_size == 7
    assert found.complete
    part = make_round(24, 12, 12, seed=5, reduction="sum")
    found = peel(part.model, without_size(part.update))
    assert 0 < len(found) < 12
    assert found.batch_size is None
    assert not found.complete
    assert repr(found).startswith(f"Recovery({len(found)} samples in ")


def test_where_nothing_tells_nothing_is_said() -> None:
    model = make_model(24, 40, 4)
    with torch.no_grad():
        model.get_parameter("0.bias").add_(50.0)
    x, y = make_batch(24, 30, 4)
    found = peel(model, without_size(round_of(model, x, y).update))
    assert len(found) == 0
    assert found.batch_size is None


def test_more_distinct_samples_than_the_stated_size_are_told() -> None:
    # In a sum nothing but the rank contradicts.
    round_ = make_round(60, 120, 9, reduction="sum")
    found = peel(round_.model, replace(round_.update, batch_size=5))
    assert found.batch_size == 5
    assert not found.complete
    assert -1 not in recovered(found, round_)


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
    for update in (round_.update, without_size(round_.update)):
        found = peel(model, update, loss=LOSSES[loss])
        assert recovered(found, round_, within=1e-3) == set(range(7))
        assert bool((found.multiplicities == 1).all())
        if update.batch_size is not None:
            assert found.complete
        elif loss == "smoothed" and reduction == "mean":
            assert found.batch_size == 7


@pytest.mark.parametrize("loss", LOSSES)
def test_an_undeclared_loss_makes_no_false_certificate(loss: str) -> None:
    for seed in range(3):
        model = make_model(40, 120, 4, seed=seed)
        x, y = make_batch(40, 7, 4, seed=seed)
        round_ = round_of(model, x, y, loss=LOSSES[loss])
        # Samples may come back, and their labels: but one that counts three times looks like three.
        found = peel(model, round_.update)
        assert -1 not in truths_of(found.samples, x)


@pytest.mark.parametrize("hidden", [(), (20,)])
def test_one_sample_alone(hidden: tuple[int, ...]) -> None:
    round_ = make_round(40, 120, 1, hidden=hidden)
    found = peel(round_.model, without_size(round_.update))
    assert recovered(found, round_) == {0}
    assert found.batch_size == 1


def test_behind_a_norm_there_is_no_next_layer_to_ask() -> None:
    body = make_model(40, 120, 5)
    torch.manual_seed(0)
    model = nn.Sequential(body[0], body[1], nn.LayerNorm(120), nn.Linear(120, 5)).double()
    x, y = make_batch(40, 7, 5)
    round_ = round_of(model, x, y)
    for size in (None, 9):
        found = peel(model, replace(round_.update, batch_size=size))
        assert found.batch_size == 7
        assert recovered(found, round_) == set(range(7))
