"""The residual: what is left is the gradient of who is left, and the error beside it is honest."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.client import gradients, local_update
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.tolerances import CLEAR, SLACK
from gradpeel.noise import with_noise
from gradpeel.target import split
from gradpeel.update import Update
from support import SmallRound, make_batch, make_model, make_round
from truth import Truth

# Fewer features than neurons: input space; more: neuron space.
ROUNDS = st.builds(
    make_round,
    features=st.sampled_from([7, 20, 45]),
    neurons=st.just(30),
    batch=st.integers(1, 8),
    classes=st.integers(2, 6),
    hidden=st.sampled_from([(), (9,)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
)
BOTH_SPACES = pytest.mark.parametrize("features", [12, 60], ids=["input space", "neuron space"])
PARTS = ("rows", "bias", "next_rows", "bias_error", "row_error", "next_error", "quiet")


def residual_of(round_: SmallRound, *, use_next: bool = True) -> Residual:
    target = split(round_.model).to(torch.float64)
    return Residual(target, round_.update, use_next=use_next)


def excess(residual: Residual, exact: Residual) -> tuple[Tensor, Tensor, Tensor]:
    """How far bias, rows and next rows are from the exact ones, in units of the tracked error."""
    alive = residual.sent.row_error > 0
    return (
        ((residual.bias - exact.bias).abs() / residual.bias_error)[alive],
        (rms(residual.rows - exact.rows) / (residual.row_error * residual.scale))[alive],
        ((residual.next_rows - exact.next_rows).abs() / residual.next_error[:, None])[alive],
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(ROUNDS)
def test_without_its_samples_nothing_is_left(round_: SmallRound) -> None:
    residual = residual_of(round_)
    assert residual.in_neuron_space == (round_.x.shape[1] > 30)
    truth = Truth.of(round_)
    touched = residual.subtract(truth.peeled(residual))
    assert touched.tolist() == (truth.c != 0).any(0).tolist()
    assert bool((residual.bias.abs() <= SLACK * residual.bias_error).all())
    assert bool((rms(residual.rows) <= SLACK * residual.row_error * residual.scale).all())
    assert bool((residual.next_rows.abs() <= SLACK * residual.next_error[:, None]).all())
    assert bool(residual.quiet.all())
    assert not len(residual.live(torch.ones(30, dtype=torch.bool)))


@pytest.mark.slow
@settings(max_examples=60)
@given(ROUNDS, st.data())
def test_what_is_left_is_the_gradient_of_who_is_left(
    round_: SmallRound, data: st.DataObject
) -> None:
    batch = len(round_.x)
    gone = torch.tensor(data.draw(st.lists(st.booleans(), min_size=batch, max_size=batch)))
    residual = residual_of(round_)
    truth = Truth.of(round_)
    residual.subtract(truth.peeled(residual).pick(gone))
    rest = {name: torch.zeros_like(g) for name, g in round_.update.gradients.items()}
    if not bool(gone.all()):
        share = round_.update.share
        assert share is not None
        rest = gradients(round_.model, round_.x[~gone], round_.y[~gone], share=share)
    rows = rest["0.weight"]
    rows = rows @ truth.target.weight.T if residual.in_neuron_space else rows
    for left, expected, sent in (
        (residual.rows, rows, residual.sent.rows),
        (residual.bias, rest["0.bias"], residual.sent.bias),
        (residual.next_rows, rest["2.weight"].T, residual.sent.next_rows),
    ):
        assert float((left - expected).abs().max()) <= 1e-12 * float(sent.abs().max())


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(4))
def test_quiet_is_where_nobody_who_is_left_fires(features: int, seed: int) -> None:
    round_ = make_round(features=features, neurons=50, batch=6, seed=seed)
    residual = residual_of(round_)
    grid = round_.exposure.grid
    assert residual.quiet.tolist() == (~grid.any(1)).tolist()
    peeled = Truth.of(round_).peeled(residual)
    for left in ([3, 4, 5], [5], []):
        residual.restore()
        gone = torch.tensor([i for i in range(6) if i not in left])
        residual.subtract(peeled.pick(gone))
        assert residual.quiet.tolist() == (~grid[:, left].any(1)).tolist()


@BOTH_SPACES
def test_jointly_or_one_by_one_is_the_same(features: int) -> None:
    round_ = make_round(features=features, neurons=50, batch=6)
    joint, single = residual_of(round_), residual_of(round_)
    peeled = Truth.of(round_).blurred(joint, 1e-6)
    joint.subtract(peeled)
    touched = torch.zeros(50, dtype=torch.bool)
    for i in (4, 0, 5, 2, 1, 3):
        touched |= single.subtract(peeled.pick(torch.tensor([i])))
    assert touched.tolist() == (peeled.sensitivities != 0).any(0).tolist()
    for part in PARTS:
        one, other = getattr(joint, part).double(), getattr(single, part).double()
        size = float(getattr(joint.sent, part, one).abs().max())
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-13 * size)


@BOTH_SPACES
def test_restore_starts_over_from_what_was_sent(features: int) -> None:
    round_ = make_round(features=features, neurons=50, batch=6)
    residual, fresh = residual_of(round_), residual_of(round_)
    peeled = Truth.of(round_).blurred(residual, 1e-6)
    for _ in range(2):  # what was sent must not have been written to
        residual.subtract(peeled)
        assert not torch.equal(residual.bias, fresh.bias)
        residual.restore()
        for part in PARTS:
            assert torch.equal(getattr(residual, part), getattr(fresh, part))


def widened(round_: SmallRound, extra: int) -> SmallRound:
    """The same round with features that are always 0: other coordinates, the same samples."""
    model = make_model(round_.x.shape[1] + extra, 50, 4)
    narrow, wide = round_.model[0], model[0]
    assert isinstance(narrow, nn.Linear)
    assert isinstance(wide, nn.Linear)
    with torch.no_grad():
        wide.weight[:, : round_.x.shape[1]] = narrow.weight
        wide.bias.copy_(narrow.bias)
        model[2].load_state_dict(round_.model[2].state_dict())
    x = torch.cat([round_.x, torch.zeros(len(round_.x), extra).double()], 1)
    return SmallRound(model, x, round_.y, local_update(model, x, round_.y))


@pytest.mark.parametrize("seed", range(4))
def test_both_spaces_see_the_same_candidates(seed: int) -> None:
    narrow = make_round(features=20, neurons=50, batch=6, seed=seed)
    wide = widened(narrow, 40)
    one, other = residual_of(narrow), residual_of(wide)
    assert not one.in_neuron_space
    assert other.in_neuron_space
    some = torch.tensor([0, 3])
    for _ in range(2):
        live = one.live(torch.ones(50, dtype=torch.bool))
        assert len(live)
        assert live.tolist() == other.live(torch.ones(50, dtype=torch.bool)).tolist()
        z = one.pre_activations(one.coordinates(live))
        torch.testing.assert_close(z, other.pre_activations(other.coordinates(live)))
        for residual in (one, other):
            own = residual.own_pre_activations(live)
            torch.testing.assert_close(own, z[torch.arange(len(live)), live])
        # The candidates are what they should be: quotients of the gradient.
        torch.testing.assert_close(one.coordinates(live), one.rows[live] / one.bias[live, None])
        # And once more with two samples gone.
        one.subtract(Truth.of(narrow).peeled(one).pick(some))
        other.subtract(Truth.of(wide).peeled(other).pick(some))
        assert one.quiet.tolist() == other.quiet.tolist()


def test_candidates_of_singletons_are_samples() -> None:
    round_ = make_round(features=12, neurons=50, batch=6)
    residual = residual_of(round_)
    singles = round_.exposure.singletons.nonzero()[:, 0]
    who = round_.exposure.grid[singles].int().argmax(1)
    torch.testing.assert_close(residual.coordinates(singles), round_.x[who])
    torch.testing.assert_close(
        residual.pre_activations(residual.coordinates(singles)), Truth.of(round_).z[who]
    )


@pytest.mark.slow
@BOTH_SPACES
@pytest.mark.parametrize("error", [1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("hidden", [(), (9,)])
def test_the_error_that_is_tracked_covers_the_true_one(
    features: int, error: float, hidden: tuple[int, ...]
) -> None:
    ratios = []
    for seed in range(5):
        round_ = make_round(features=features, neurons=50, batch=6, hidden=hidden, seed=seed)
        residual, exact = residual_of(round_), residual_of(round_)
        truth = Truth.of(round_)
        gone = torch.tensor([0, 1, 2, 3])
        before = residual.bias_error.clone(), residual.row_error.clone()
        residual.subtract(truth.blurred(residual, error, seed=seed).pick(gone))
        exact.subtract(truth.peeled(exact).pick(gone))
        ratios.append([part.flatten() for part in excess(residual, exact)])
        untouched = ~(truth.c[gone] != 0).any(0)
        assert torch.equal(residual.bias_error[untouched], before[0][untouched])
        assert torch.equal(residual.row_error[untouched], before[1][untouched])
        assert bool((residual.row_error[~untouched] > before[1][~untouched]).all())
    for parts in zip(*ratios, strict=True):
        ratio = torch.cat(parts)
        # One unit is one standard deviation, neither more nor less.
        assert float(ratio.max()) < 6.0
        assert 0.1 < float(ratio[ratio > 0].median()) < 1.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@BOTH_SPACES
def test_the_error_starts_at_the_rounding_of_the_dtype(features: int, dtype: torch.dtype) -> None:
    largest = 0.0
    for seed in range(4):
        round_ = make_round(features=features, neurons=50, batch=6, seed=seed, dtype=dtype)
        residual = residual_of(round_)
        # The same weights and samples, without the roundings of the client's arithmetic.
        model = copy.deepcopy(round_.model).double()
        exact = gradients(model, round_.x.to(dtype).double(), round_.y, share=1 / 6)
        assert residual.resolution == torch.finfo(dtype).eps
        off = (residual.bias - exact["0.bias"]).abs()
        assert bool((off <= SLACK * residual.bias_error).all())
        size = exact["0.bias"].abs().max()
        largest = max(largest, float((off / size).max()))
        assert float(residual.bias_error.max() / size) < 100 * torch.finfo(dtype).eps
    if dtype != torch.float64:
        assert largest > torch.finfo(dtype).eps / 16, "nothing was rounded: the test shows nothing"


@BOTH_SPACES
@pytest.mark.parametrize("sigma", [1e-8, 1e-5, 1e-3])
def test_noise_on_the_update_counts_as_error(features: int, sigma: float) -> None:
    ratios = []
    for seed in range(4):
        round_ = make_round(features=features, neurons=50, batch=4, classes=10, seed=seed)
        noisy = SmallRound(
            round_.model, round_.x, round_.y, with_noise(round_.update, sigma, seed=seed)
        )
        residual, exact = residual_of(noisy), residual_of(round_)
        assert exact.grain == exact.resolution
        assert sigma / 2 < residual.grain < 2 * sigma
        assert residual.resolution == exact.resolution
        sent = residual.sent
        ratios.append(
            (
                (sent.bias - exact.sent.bias).abs() / sent.bias_error,
                rms(sent.rows - exact.sent.rows) / (sent.row_error * sent.scale),
                rms(sent.next_rows - exact.sent.next_rows) / sent.next_error,
            )
        )
    for parts in zip(*ratios, strict=True):
        ratio = torch.cat(parts)
        assert float(ratio.max()) < 6.0
        assert 0.3 < float(ratio.median()) < 2.0


@BOTH_SPACES
def test_rebuilt_without_samples_whose_joint_errors_are_known(features: int) -> None:
    round_ = make_round(features=features, neurons=50, batch=6)
    residual, exact = residual_of(round_), residual_of(round_)
    peeled = Truth.of(round_).peeled(residual)
    some = torch.tensor([0, 1, 2, 3])
    residual.subtract(peeled)
    bias_error, row_error = (torch.rand(50, dtype=torch.float64) * 1e-9 for _ in range(2))
    residual.rebuild(peeled.pick(some), bias_error=bias_error, row_error=row_error)
    exact.subtract(peeled.pick(some))
    for part in ("rows", "bias", "next_rows", "next_error"):
        assert torch.equal(getattr(residual, part), getattr(exact, part))
    assert torch.equal(residual.bias_error, bias_error)
    assert torch.equal(residual.row_error, row_error)
    # Neurons are judged by the errors that were given, not by those of the subtraction.
    assert residual.quiet.tolist() == (~round_.exposure.grid[:, 4:].any(1)).tolist()
    nowhere = torch.zeros(50, dtype=torch.float64)
    residual.rebuild(peeled.pick(some), bias_error=nowhere, row_error=nowhere)
    assert not bool(residual.quiet[residual.bias != 0].any())


@BOTH_SPACES
def test_a_sensitivity_in_doubt_counts_as_error(features: int) -> None:
    round_ = make_round(features=features, neurons=50, batch=6)
    residual = residual_of(round_)
    peeled = Truth.of(round_).peeled(residual)
    single = int(round_.exposure.singletons.nonzero()[0])
    who = int(round_.exposure.grid[single].int().argmax())
    # At this neuron, the only one's pre-activation is so small that it might not fire at all.
    c = peeled.sensitivities.clone()
    kink = torch.zeros_like(c)
    kink[who, single] = c[who, single]
    c[who, single] = 0.0
    touched = residual.subtract(replace(peeled, sensitivities=c, kink=kink))
    assert bool(touched[single])
    assert residual.bias_error[single] >= kink[who, single].abs()
    assert not len(residual.live(torch.ones(50, dtype=torch.bool)))
    assert bool(residual.quiet.all())


def test_only_neurons_well_above_their_error_are_live() -> None:
    round_ = make_round(features=12, neurons=50, batch=6)
    residual = residual_of(round_)
    everywhere = torch.ones(50, dtype=torch.bool)
    fired = round_.exposure.grid.any(1)
    assert residual.live(everywhere).tolist() == fired.nonzero()[:, 0].tolist()
    some = everywhere.clone()
    some[::2] = False
    assert residual.live(some).tolist() == (fired & some).nonzero()[:, 0].tolist()
    loud = int(residual.live(everywhere)[0])
    residual.row_error[loud] = residual.bias[loud].abs() / (0.9 * CLEAR)
    assert loud not in residual.live(everywhere)
    residual.row_error[loud] = residual.bias[loud].abs() / (1.1 * CLEAR)
    assert loud in residual.live(everywhere)


def test_a_residual_of_rows_without_a_bias_is_not_quiet() -> None:
    # Two samples may cancel in the bias; then the row tells that they are there.
    round_ = make_round(features=12, neurons=50, batch=6)
    sent = dict(round_.update.gradients)
    bias = sent["0.bias"].clone()
    bias[4] = 0.0
    assert bool(round_.exposure.grid[4].any())
    update = Update(sent | {"0.bias": bias}, 6)
    residual = Residual(split(round_.model), update)
    assert not residual.quiet[4]
    assert 4 not in residual.live(torch.ones(50, dtype=torch.bool))
    assert residual.bias_error[4] > 0


@pytest.mark.parametrize("case", ["not used", "not sent", "no next layer"])
def test_without_a_next_layer_there_are_no_next_rows(case: str) -> None:
    round_ = make_round(features=12, neurons=50, batch=6)
    model, update = round_.model, round_.update
    if case == "not sent":
        update = Update({name: g for name, g in update.gradients.items() if name[0] == "0"}, 6)
    if case == "no next layer":
        model = nn.Sequential(model[0], model[1], nn.LayerNorm(50).double(), model[2])
        update = local_update(model, round_.x, round_.y)
    other = SmallRound(model, round_.x, round_.y, update)
    residual = residual_of(other, use_next=case != "not used")
    assert not residual.has_next
    assert residual.next_rows.shape == (50, 0)
    residual.subtract(Truth.of(other).peeled(residual))
    assert bool(residual.quiet.all())


def test_an_update_of_zeros_is_quiet() -> None:
    model = make_model(12, 50, 4)
    x, y = make_batch(12, 3, 4)
    nothing = {name: 0 * g for name, g in local_update(model, x, y).gradients.items()}
    residual = Residual(split(model), Update(nothing, 3))
    assert bool(residual.quiet.all())
    assert residual.scale == residual.spread == 1.0
    assert not len(residual.live(torch.ones(50, dtype=torch.bool)))
    assert len(residual.coordinates(torch.zeros(0, dtype=torch.long))) == 0


def test_subtracting_nobody_changes_nothing() -> None:
    round_ = make_round(features=12, neurons=50, batch=6)
    residual, fresh = residual_of(round_), residual_of(round_)
    nobody = torch.zeros(0, dtype=torch.long)
    assert not residual.subtract(Truth.of(round_).peeled(residual).pick(nobody)).any()
    for part in PARTS:
        torch.testing.assert_close(getattr(residual, part), getattr(fresh, part))


def test_wide_layers_are_left_for_neuron_space() -> None:
    for features, neurons, expected in ((30, 60, False), (1030, 2050, True), (1000, 2050, False)):
        round_ = make_round(features=features, neurons=neurons, batch=2)
        assert residual_of(round_).in_neuron_space == expected
