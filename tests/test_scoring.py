"""Scores by hand, and the strength of samples against a slow loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder import Recovery
from gradpeel.exposure import Exposure
from gradpeel.scoring import TOLERANCE, Outcome, Score, explain, score, signals
from gradpeel.target import split
from support import SmallRound, make_round

X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 3])
# Sample 0 falls first, then 1, then 2; sample 3 is never reached.
GRID = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]).bool()


def recovery_of(samples: Tensor, labels: list[int]) -> Recovery:
    """What a decoder that found these samples would return."""
    count = len(labels)
    none = torch.zeros(count)
    return Recovery(
        samples=samples,
        labels=torch.tensor(labels, dtype=torch.long),
        residuals=none,
        errors=none,
        chances=none,
        equations=none.long(),
        rounds=none.long(),
        sources=none.long(),
        isolating=((),) * count,
        evidence=(),
        trace=(),
        batch_size=4,
        explained=0.0,
        mismatch=0.0,
        faint=False,
        complete=False,
        stopped="",
    )


def scored(
    samples: Tensor, labels: list[int], *, x: Tensor = X, strength: float = 1.0, needed: float = 0.1
) -> Score:
    return score(
        recovery_of(samples, labels),
        x,
        Y,
        exposure=Exposure.of(GRID),
        signals=torch.full((4,), strength),
        needed=needed,
    )


def test_everything_right() -> None:
    found = scored(X[[2, 0, 1]], [2, 0, 1])
    assert found.matches.tolist() == [2, 0, 1]
    assert found.recovered == 3
    assert found.recovery_rate == 0.75
    assert found.oracle_rate == 0.75
    assert found.baseline_rate == 0.25
    assert (found.false_certificates, found.repeats) == (0, 0)
    assert found.label_accuracy == 1.0
    assert (found.max_abs_error, found.median_abs_error) == (0.0, 0.0)
    assert found.outcomes == (Outcome.RECOVERED,) * 3 + (Outcome.UNREACHED,)


def test_false_certificates_repeats_and_wrong_labels_are_told_apart() -> None:
    mixture = X[[0, 3]].mean(0, keepdim=True)
    found = scored(torch.cat([X[[0, 1, 0, 0]], mixture, X[[2]]]), [0, 3, 0, 1, 0, 2])
    assert found.matches.tolist() == [0, 1, 0, 0, -1, 2]
    assert found.recovered == 3
    assert found.false_certificates == 1
    assert found.repeats == 2
    assert found.labels_right.tolist() == [True, False, True, False, False, True]
    assert found.label_accuracy == 3 / 5


def test_errors_are_those_of_matched_samples() -> None:
    off = torch.tensor([[1e-4, 0.0], [0.0, 3e-4], [-2e-4, 1e-4], [9.0, 9.0]])
    found = scored(X[[0, 1, 2, 3]] + off, [0, 1, 2, 3])
    assert found.false_certificates == 1
    assert found.errors.tolist() == pytest.approx([1e-4, 3e-4, 2e-4, 9.0])
    assert found.max_abs_error == pytest.approx(3e-4)
    assert found.median_abs_error == pytest.approx(2e-4)


@pytest.mark.parametrize("span", [1.0, 255.0, 1e-3])
def test_right_means_within_the_tolerance_of_the_data_s_range(span: float) -> None:
    inside, outside = 0.99 * TOLERANCE * span, 1.01 * TOLERANCE * span
    x = X * span
    shift = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert scored(x[:1] + inside * shift, [0], x=x).false_certificates == 0
    assert scored(x[:1] + outside * shift, [0], x=x).false_certificates == 1


def test_one_entry_far_off_makes_a_sample_false() -> None:
    x = torch.zeros(4, 1000, dtype=torch.float64)
    x[1:, 0] = torch.tensor([1.0, 2.0, 4.0])
    off = x[:1].clone()
    off[0, -1] = 0.1  # on average next to nothing
    assert scored(off, [0], x=x).false_certificates == 1


def test_nothing_found() -> None:
    found = scored(X[:0], [])
    assert (found.recovered, found.recovery_rate) == (0, 0.0)
    assert (found.false_certificates, found.repeats) == (0, 0)
    assert found.label_accuracy is None
    assert found.max_abs_error is None
    assert found.median_abs_error is None
    assert found.baseline_rate == 0.25


def test_nothing_but_false_ones() -> None:
    found = scored(X[:2] + 7, [0, 1])
    assert found.false_certificates == 2
    assert found.repeats == 0
    assert found.label_accuracy is None
    assert found.max_abs_error is None
    assert found.median_abs_error is None


def test_a_batch_of_equal_entries_has_a_range_too() -> None:
    x = torch.full((4, 2), 0.5, dtype=torch.float64)
    found = scored(x[:1], [0], x=x)
    assert found.recovered == 1
    assert scored(x[:1] + 0.1, [0], x=x).false_certificates == 1


def test_samples_are_matched_in_their_own_shape_and_dtype() -> None:
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    found = scored(x[[3, 1]].double(), [3, 1], x=x)
    assert found.matches.tolist() == [3, 1]
    assert found.label_accuracy == 1.0


@pytest.mark.parametrize(
    ("strength", "needed", "outcome"),
    [
        (0.2, 0.1, Outcome.MISSED),
        (0.1, 0.1, Outcome.MISSED),
        (0.05, 0.1, Outcome.FAINT),
        (0.0, 1e-12, Outcome.FAINT),
        (1.0, 1.0, Outcome.COARSE),
        (1.0, 7.8, Outcome.COARSE),
    ],
)
def test_a_sample_within_reach_that_is_missing_is_explained(
    strength: float, needed: float, outcome: Outcome
) -> None:
    found = scored(X[[1]], [1], strength=strength, needed=needed)
    assert found.outcomes == (outcome, Outcome.RECOVERED, outcome, Outcome.UNREACHED)


def test_every_sample_is_explained_by_its_own_strength() -> None:
    found = score(
        recovery_of(X[:0], []),
        X,
        Y,
        exposure=Exposure.of(GRID),
        signals=torch.tensor([0.5, 0.01, 0.2, 0.0]),
        needed=0.1,
    )
    assert found.outcomes == (
        Outcome.MISSED,
        Outcome.FAINT,
        Outcome.MISSED,
        Outcome.UNREACHED,
    )


def test_a_sample_peeling_does_not_reach_may_be_recovered_all_the_same() -> None:
    assert scored(X[[3]], [3]).outcomes[3] is Outcome.RECOVERED


def sensitivities(round_: SmallRound) -> Tensor:
    """(neurons, batch) by autograd, one sample at a time."""
    target = split(round_.model)
    columns = []
    for x, y in zip(round_.x, round_.y, strict=True):
        a = target.pre_activations(target.front(x[None])).relu().requires_grad_()
        loss = torch.nn.functional.cross_entropy(target.tail(a), y[None])
        columns.append(torch.autograd.grad(loss, a)[0][0] * (a[0] > 0))
    return torch.stack(columns, 1).detach()


def doubts(round_: SmallRound) -> Tensor:
    """(batch,) 1 - p_y: how far a prediction is from certain."""
    p = torch.softmax(round_.model(round_.x), 1).detach()
    return 1 - p[torch.arange(len(p)), round_.y]


def signals_slowly(c: Tensor, exposure: Exposure) -> list[float]:
    """Peel the grid sample by sample; note its share where a neuron is down to one mark."""
    neurons, batch = exposure.grid.shape
    strongest = [0.0] * batch
    left = [set(exposure.grid[j].nonzero()[:, 0].tolist()) for j in range(neurons)]
    while True:
        singles = [(j, next(iter(samples))) for j, samples in enumerate(left) if len(samples) == 1]
        if not singles:
            return strongest
        for j, i in singles:
            summed = float(c[j].abs().sum())
            share = abs(float(c[j, i])) / summed if summed else 0.0
            strongest[i] = max(strongest[i], share)
        fallen = {i for _, i in singles}
        left = [samples - fallen for samples in left]


@settings(max_examples=60)
@given(
    st.builds(
        make_round,
        features=st.integers(2, 12),
        neurons=st.integers(3, 25),
        batch=st.integers(1, 8),
        classes=st.integers(2, 5),
        hidden=st.sampled_from([(), (6,)]),
        seed=st.integers(0, 1000),
    )
)
def test_signals_equal_the_slow_loop(round_: SmallRound) -> None:
    exposure = round_.exposure
    found = signals(split(round_.model), round_.x, round_.y, exposure)
    shares = torch.tensor(signals_slowly(sensitivities(round_), exposure), dtype=torch.float64)
    expected = torch.minimum(shares, doubts(round_))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_a_sample_with_a_neuron_of_its_own_has_its_full_strength() -> None:
    round_ = make_round(batch=6)
    exposure = round_.exposure
    found = signals(split(round_.model), round_.x, round_.y, exposure)
    assert bool(exposure.isolated.any())
    # All that can weaken it there is that its prediction is right.
    alone = exposure.isolated
    torch.testing.assert_close(found[alone], doubts(round_)[alone])
    assert bool((found[~exposure.reached] == 0).all())
    assert bool(((found >= 0) & (found <= 1)).all())


def test_a_faint_sample_has_a_weak_signal() -> None:
    # Two samples share every neuron but one; the second one's prediction is nearly certain.
    round_ = make_round(features=6, neurons=30, batch=2, classes=2, seed=1)
    target = split(round_.model)
    grid = torch.ones(30, 2, dtype=torch.bool)
    grid[0, 1] = False
    certain = target.logits(round_.x).argmax(1)
    y = torch.stack([1 - certain[0], certain[1]])
    tail = target.tail
    assert tail.next_layer is not None
    with torch.no_grad():
        tail.next_layer.weight.mul_(20.0)
        tail.next_layer.bias.mul_(20.0)
    strength = signals(target, round_.x, y, Exposure.of(grid))
    assert strength[0] > 0.99
    assert 0 < strength[1] < 1e-3


def test_missed_samples_are_explained_by_what_the_decoder_knew() -> None:
    found = scored(X[:1], [0])
    assert found.outcomes[1:] == (Outcome.MISSED, Outcome.MISSED, Outcome.UNREACHED)
    # Neuron 1 comes to isolate sample 1; sample 2 waits behind it at neuron 2.
    c = GRID * 1e-6
    vague, sharp = torch.full((3,), 1e-8), torch.full((3,), 1e-20)
    exposed = Exposure.of(GRID)
    inexact = explain(found, exposed, c, vague, enough=1e7)
    hidden = (Outcome.HIDDEN, Outcome.UNREACHED)
    assert inexact.outcomes == (Outcome.RECOVERED, Outcome.INEXACT, *hidden)
    exact = explain(found, exposed, c, sharp, enough=1e7)
    assert exact.outcomes == (Outcome.RECOVERED, Outcome.MISSED, *hidden)
