"""The first look: nobody is turned away who would be certified, and nearly all mixtures are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradpeel.client import local_update
from gradpeel.decoder.glance import glance, share_firing
from gradpeel.losses import CrossEntropy
from gradpeel.noise import with_noise
from support import SmallRound, make_batch, make_model, make_round
from truth import FirstLook

ROUNDS = st.builds(
    make_round,
    features=st.sampled_from([20, 150]),
    neurons=st.integers(30, 120),
    batch=st.integers(2, 20),
    classes=st.integers(2, 8),
    hidden=st.sampled_from([(), (), (12,), (20, 9)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(ROUNDS, st.sampled_from([0.0, 1e-7, 1e-4]), st.booleans(), st.integers(0, 2))
def test_nobody_is_turned_away_who_is_sound(
    round_: SmallRound,
    noise: float,
    strict: bool,
    peeled: int,
) -> None:
    if noise:
        noisy = with_noise(round_.update, noise, seed=1)
        round_ = SmallRound(round_.model, round_.x, round_.y, noisy)
    look = FirstLook(round_)
    gone = (round_.exposure.rounds > 0) & (round_.exposure.rounds <= peeled)
    look.residual.subtract(look.truth.peeled(look.residual, error=1e-9).pick(gone))
    candidates = look.gather(torch.ones_like(look.residual.quiet))
    worth, glanced = glance(candidates, look.residual, look.backward, strict=strict)
    verdicts = look.judge(candidates, strict=strict)
    assert not bool((verdicts.sound & ~worth).any())
    assert not bool((verdicts.vague & ~worth).any())
    # What was simulated is what the certificate simulates.
    assert glanced is not None
    assert torch.equal(glanced.counts, verdicts.peeled.counts[worth])
    alone = look.judge(candidates.pick(worth), strict=strict)
    assert torch.equal(alone.accepted, verdicts.accepted[worth])
    torch.testing.assert_close(alone.chance, verdicts.chance[worth])


@pytest.mark.parametrize("hidden", [(), (20,)])
@pytest.mark.parametrize("seed", range(3))
def test_nearly_all_mixtures_are_turned_away(hidden: tuple[int, ...], seed: int) -> None:
    look = FirstLook(make_round(150, 300, 30, 6, hidden, seed=seed))
    worth, _ = glance(look.candidates, look.residual, look.backward, strict=True)
    assert bool(worth[look.genuine].all())
    mixtures = ~look.genuine
    assert int(mixtures.sum()) > 100
    assert int((worth & mixtures).sum()) <= 2


def smoothed_round() -> FirstLook:
    """A round of a client with label smoothing: gradients are negative at several classes."""
    model = make_model(150, 200, 6)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(8.0)
    x, y = make_batch(150, 6, 6)
    loss = CrossEntropy(label_smoothing=0.3)
    round_ = SmallRound(model, x, y, local_update(model, x, y, loss=loss))
    look = FirstLook(round_)
    object.__setattr__(look.backward, "loss", loss)
    return look


def test_smoothed_labels_are_no_mixtures() -> None:
    look = smoothed_round()
    several = (look.residual.next_rows[look.candidates.neurons] < 0).sum(1) > 1
    assert bool((several & look.genuine).any())
    worth, _ = glance(look.candidates, look.residual, look.backward, strict=True)
    assert bool(worth[look.genuine].all())


def test_without_the_next_layer_all_are_judged() -> None:
    look = FirstLook(make_round(), use_next=False)
    worth, glanced = glance(look.candidates, look.residual, look.backward, strict=True)
    assert bool(worth.all())
    assert glanced is None


def test_how_often_neurons_fire() -> None:
    look = FirstLook(make_round(150, 100, 8))
    exact = (look.candidates.pre_activations > 0).double().mean(0)
    torch.testing.assert_close(share_firing(look.candidates, look.residual).double(), exact)
    nobody = look.candidates.pick(torch.zeros(len(look.candidates), dtype=torch.bool))
    assert not bool(share_firing(nobody, look.residual).any())


def test_a_bound_on_the_response() -> None:
    look = FirstLook(make_round(150, 100, 12, 5))
    bound = look.backward.largest_response
    assert bound is not None
    _, glanced = glance(look.candidates, look.residual, look.backward, strict=True)
    assert glanced is not None
    assert bool((glanced.response <= bound).all())
    deep = FirstLook(make_round(hidden=(9,)))
    assert deep.backward.largest_response is None
    assert isinstance(deep.backward.tail.next_layer, nn.Linear)
