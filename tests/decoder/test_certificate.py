"""The certificate's formal guarantees, a test each, on rounds whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder import peel
from gradpeel.decoder.peeled import typical
from gradpeel.decoder.structure import LARGEST, Structure
from gradpeel.decoder.tolerances import CHANCE, EXACT, LOOSEST, SLACK
from support import make_model, make_round, round_of, truths_of
from truth import FirstLook, Truth

SEEDS = range(8)
WIDE = 400
"""Neurons by which firing patterns differ enough to be telling."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("use_next", [True, False])
def test_accepts_singletons_and_nothing_else(seed: int, *, use_next: bool) -> None:
    look = FirstLook(make_round(seed=seed), use_next=use_next)
    assert 0 < int(look.genuine.sum()) < len(look.candidates)
    assert look.judge().accepted.tolist() == look.genuine.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_firing(seed: int) -> None:
    look = FirstLook(make_round(seed=seed))
    own = look.candidates.pre_activations.gather(1, look.candidates.neurons[:, None])
    assert bool((own > 0).all())
    live = look.residual.bias != 0
    silent = live & ~torch.isin(torch.arange(len(live)), look.candidates.pairs[1])
    left_out = silent.nonzero()[:, 0]
    assert bool((look.residual.own_pre_activations(left_out) <= 0).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_bias_equation_holds_at_every_isolating_neuron(seed: int) -> None:
    look = FirstLook(make_round(seed=seed, batch=4), use_next=False)
    before = look.judge()
    row, column = look.candidates.pairs
    shared = [
        (r, c)
        for r, c in zip(row.tolist(), column.tolist(), strict=True)
        if before.accepted[r] and c != int(look.candidates.neurons[r])
    ]
    assert shared, "no candidate is isolated twice: the test would show nothing"
    for candidate, other in shared:
        original = look.residual.bias[other].clone()
        look.residual.bias[other] *= 1 + 1e-6  # not the neuron the candidate was read from
        assert not look.judge().accepted[candidate]
        look.residual.bias[other] = original


@pytest.mark.parametrize("seed", SEEDS)
def test_next_layer_must_be_explained_entry_by_entry(seed: int) -> None:
    look = FirstLook(make_round(seed=seed, classes=6))
    accepted = look.judge().accepted.nonzero()[:, 0]
    for candidate in accepted.tolist():
        neuron = int(look.candidates.neurons[candidate])
        for entry in range(6):
            original = look.residual.next_rows[neuron, entry].clone()
            size = look.residual.next_rows[neuron].abs().max()
            look.residual.next_rows[neuron, entry] += 1e-6 * size
            assert not look.judge().accepted[candidate]
            look.residual.next_rows[neuron, entry] = original
    assert look.judge().accepted[accepted].all()


@pytest.mark.parametrize("seed", SEEDS)
def test_support(seed: int) -> None:
    look = FirstLook(make_round(neurons=WIDE, seed=seed))
    for judge in (look.judge, look.judge_by_structure):
        verdicts = judge()
        accepted = verdicts.accepted.nonzero()[:, 0].tolist()
        assert accepted
        for candidate in accepted:
            fires = verdicts.peeled.sensitivities[candidate] != 0
            fires[look.candidates.pairs[1]] = False
            somewhere = fires.nonzero()[:, 0]
            if not len(somewhere):
                continue
            neuron = int(somewhere[0])
            look.residual.quiet[neuron] = True  # pretend its residual were zero already
            assert not judge().accepted[candidate]
            look.residual.quiet[neuron] = False


@pytest.mark.parametrize("use_next", [True, False])
def test_weight_of_evidence(*, use_next: bool) -> None:
    look = FirstLook(make_round(classes=6), use_next=use_next)
    verdicts = look.judge()
    assert bool((verdicts.chance[verdicts.accepted] <= CHANCE).all())
    # A single scalar equation that holds to seven digits only: 6 labels x 2e-7 is not beyond
    # chance, and with a batch as large as the layer the structure of the update says nothing.
    look.structure = Structure(look.residual.sent, 80)
    look.residual.bias_error += 1e-8 * look.residual.bias.abs()
    look.residual.bias *= 1 + 1e-7
    again = look.judge()
    if use_next:
        assert bool((verdicts.equations > 1)[verdicts.accepted].all())
    else:
        assert bool(verdicts.accepted[look.lonely].any())
        assert not again.accepted[look.lonely].any()


def test_entries_too_small_to_tell_are_no_evidence() -> None:
    # A certain but wrong prediction: p - e_y has two entries that count, whatever the classes.
    round_ = make_round(classes=8)
    plain = FirstLook(round_).judge()
    with torch.no_grad():
        round_.model.get_parameter("2.weight").mul_(200.0)
    verdicts = FirstLook(round_of(round_.model, round_.x, round_.y)).judge()
    assert int(plain.equations[plain.accepted].min()) > 5
    assert int(verdicts.equations[verdicts.accepted].min()) <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_makes_up_for_a_weak_equation(seed: int) -> None:
    look = FirstLook(make_round(neurons=WIDE, seed=seed), use_next=False)
    look.residual.bias_error += 1e-8 * look.residual.bias.abs()
    look.residual.bias *= 1 + 1e-7
    verdicts = look.judge()
    assert verdicts.accepted.tolist() == look.genuine.tolist()
    assert bool((verdicts.equations[look.lonely] > 10).all())


def certain(scale: float, *, classes: int = 3, seed: int = 0) -> FirstLook:
    """A round whose predictions are the surer the larger the scale, and wrong for most samples."""
    model = make_model(24, 80, classes, seed=seed)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(scale)
    round_ = make_round(classes=classes, seed=seed)
    with torch.no_grad():
        wrong = (model(round_.x).argmax(1) + 1) % classes
    # With a batch as large as the layer the structure of the update says nothing.
    return FirstLook(round_of(model, round_.x, wrong), batch_size=80)


@pytest.mark.parametrize("seed", SEEDS)
def test_response(seed: int) -> None:
    # Where the loss gradient is the same for every sample, any mixture satisfies the equations to
    # the last digit: they prove nothing.
    plain, sure = certain(1.0, seed=seed), certain(2000.0, seed=seed)
    assert plain.judge().accepted.tolist() == plain.genuine.tolist()
    verdicts = sure.judge()
    simulated = sure.backward.simulate(
        sure.candidates.pre_activations.relu(), verdicts.peeled.counts
    )
    deaf = simulated.response < 1e-30
    holds = verdicts.mismatch < 1e-12
    assert bool((deaf & holds & sure.genuine).any())
    assert not bool(verdicts.accepted[deaf].any())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_structure_accepts_singletons_and_nothing_else(seed: int, dtype: torch.dtype) -> None:
    look = FirstLook(make_round(neurons=WIDE, batch=6, seed=seed, dtype=dtype))
    verdicts = look.judge_by_structure()
    assert not bool(verdicts.accepted[~look.genuine].any())
    # In float32 a neuron at which much cancels is not exact enough.
    needed = look.genuine & (look.candidates.error < 1e-4)
    assert bool(needed.any())
    assert bool(verdicts.accepted[needed].all())
    assert bool((verdicts.chance[verdicts.accepted] <= CHANCE).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_without_a_next_layer_accepts_nothing_but_singletons(seed: int) -> None:
    look = FirstLook(make_round(60, WIDE, 6, seed=seed), use_next=False)
    verdicts = look.judge_by_structure()
    assert bool(verdicts.accepted.any())
    # One neuron alone says nothing: the sensitivity there sets the scale of the others.
    assert not bool(verdicts.accepted[~look.pooled].any())


@pytest.mark.parametrize("use_next", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_structure_must_have_been_left_room(seed: int, *, use_next: bool) -> None:
    round_ = make_round(60, WIDE, 6, seed=seed)
    look = FirstLook(round_, use_next=use_next, batch_size=WIDE)
    assert not look.structure.tells
    assert not bool(look.judge_by_structure(trace=LARGEST).accepted.any())


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_is_nearer_than_the_largest_distance(seed: int) -> None:
    look = FirstLook(make_round(neurons=WIDE, batch=6, seed=seed))
    candidate = int(look.genuine.nonzero()[0])
    pool = list(look.candidates.isolating(torch.tensor([candidate]))[0])
    a = look.candidates.pre_activations[candidate, pool]
    v = look.truth.v[look.who[candidate]]
    assert bool(look.judge_by_structure().accepted[candidate])
    original = look.residual.next_rows.clone()
    # The bias is so vague that it says nothing.
    look.residual.bias_error[pool] = look.residual.bias[pool].abs()
    for off in (1e-7, 1e-4, 0.3):
        # What the next layer says is off, and it is not said to be.
        look.residual.next_rows[pool, 0] += off * a * v.abs().max()
        strict, lenient = look.judge_by_structure(), look.judge_by_structure(trace=LARGEST)
        distance = float(lenient.mismatch[candidate])
        assert off / 10 < distance < 10 * off
        assert not bool(strict.accepted[candidate])
        assert bool(lenient.sound[candidate]) <= (distance <= LARGEST)
        assert not bool(look.judge_by_structure(trace=off / 10).accepted[candidate])
        look.residual.next_rows.copy_(original)


def hidden_from_the_bias(look: FirstLook, candidate: int) -> Tensor:
    """(next width,) a unit change of v that leaves the bias entries of a candidate as they are."""
    layer = look.truth.target.tail.next_layer
    assert layer is not None
    pool = list(look.candidates.isolating(torch.tensor([candidate]))[0])
    everything = torch.linalg.svd(layer.weight[:, pool].T)[2]
    assert len(pool) < len(everything)
    last: Tensor = everything[-1]
    return last


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_is_a_matter_of_distance(seed: int) -> None:
    # The next layer says something else of the sample, but the same at the neurons it is read from.
    look = FirstLook(make_round(neurons=WIDE, batch=6, classes=40, seed=seed))
    candidate = int(look.genuine.nonzero()[0])
    pool = list(look.candidates.isolating(torch.tensor([candidate]))[0])
    change = hidden_from_the_bias(look, candidate) * look.truth.v[look.who[candidate]].norm()
    a = look.candidates.pre_activations[candidate, pool, None]
    original = look.residual.next_rows.clone()
    for off in (1e-9, 1e-5, 3e-3, 1.5e-2, 0.3):
        look.residual.next_rows[pool] += off * a * change
        verdicts = look.judge_by_structure()
        distance = float(verdicts.mismatch[candidate])
        assert off / 10 < distance < 10 * off
        assert not bool(verdicts.sound[candidate])
        for trace in (distance / 2, 2 * distance, 1.0):
            verdicts = look.judge_by_structure(trace=trace)
            near = distance <= min(trace, LARGEST)
            assert bool(verdicts.sound[candidate]) == near
            assert bool(verdicts.accepted[candidate]) == near
            # What was let through carries it along as its error.
            assert not near or float(verdicts.peeled.sample_error[candidate]) >= distance
        look.residual.next_rows.copy_(original)


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_lets_no_bias_entry_be_far_off_however_vague_it_is(seed: int) -> None:
    look = FirstLook(make_round(60, WIDE, 6, seed=seed))
    candidate = int(look.pooled.nonzero()[0])
    own = int(look.candidates.neurons[candidate])
    other = next(j for j in look.candidates.isolating(torch.tensor([candidate]))[0] if j != own)
    look.residual.bias_error += 1.0
    assert bool(look.judge_by_structure().accepted[candidate])
    look.residual.bias[other] += 3 * LOOSEST * typical(look.truth.c)[look.who[candidate]]
    verdicts = look.judge_by_structure()
    assert float(verdicts.mismatch[candidate]) > LOOSEST
    assert not bool(verdicts.accepted[candidate])


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_explains_the_bias_too(seed: int) -> None:
    for use_next in (True, False):
        look = FirstLook(make_round(60, WIDE, 6, seed=seed), use_next=use_next)
        accepted = look.judge_by_structure().accepted
        row, column = look.candidates.pairs
        shared = [
            (r, c)
            for r, c in zip(row.tolist(), column.tolist(), strict=True)
            if accepted[r] and c != int(look.candidates.neurons[r])
        ]
        assert shared, "no candidate is isolated twice: the test would show nothing"
        for candidate, other in shared[:5]:
            original = look.residual.bias[other].clone()
            look.residual.bias[other] *= 1 + 1e-3
            assert not look.judge_by_structure().accepted[candidate]
            look.residual.bias[other] = original


def test_structure_must_tell_samples_apart() -> None:
    # In a layer this narrow a mixture may well fire as a sample does.
    look = FirstLook(make_round(neurons=40, batch=6))
    assert look.structure.tells
    verdicts = look.judge_by_structure(trace=LARGEST)
    assert bool(verdicts.sound[look.genuine].all())
    assert not bool(verdicts.accepted.any())


@pytest.mark.parametrize("seed", range(3))
def test_samples_that_fire_alike_are_told_from_their_mixtures_by_the_tail(seed: int) -> None:
    # Two samples that fire the same neurons, here nearly the same picture in another light: any
    # mixture of them fires these too, and lies in the space as they do.
    round_ = make_round(60, WIDE, 8, 5, seed=seed)
    with torch.no_grad():
        round_.model.get_parameter("0.bias").zero_()
    x = round_.x - 0.5
    x[1] = 0.4 * x[0] + 1e-5 * torch.linspace(-1, 1, 60)
    alike = round_of(round_.model, x, round_.y)
    grid = alike.exposure.grid
    assert torch.equal(grid[:, 0], grid[:, 1])
    look = FirstLook(alike)
    both = grid[look.candidates.neurons, 0] & (grid[look.candidates.neurons].sum(1) == 2)
    assert bool(look.judge_by_structure(trace=LARGEST).accepted[both].any())
    found = peel(alike.model, alike.update)
    assert -1 not in truths_of(found.samples, x)


@pytest.mark.parametrize("seed", SEEDS)
def test_exactness(seed: int) -> None:
    look = FirstLook(make_round(neurons=WIDE, seed=seed))
    vague = replace(look.candidates, error=torch.full_like(look.candidates.error, 1.0))
    for judge in (look.judge, look.judge_by_structure):
        verdicts = judge()
        assert bool(verdicts.accepted.any())
        assert bool((verdicts.peeled.sample_error[verdicts.accepted] <= EXACT).all())
        assert not judge(vague).accepted.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_error_is_corrected_by_how_well_the_equations_hold(seed: int) -> None:
    look = FirstLook(make_round(seed=seed))
    # Said to be known to three digits; the equations hold to all of them.
    vague = replace(look.candidates, error=torch.full_like(look.candidates.error, 1e-3))
    error = look.judge(vague).peeled.sample_error[look.genuine]
    torch.testing.assert_close(error, torch.full_like(error, 2.5e-4))
    # Said to be known to nine digits; the equations are off by more, but not by too much more.
    look.residual.bias *= 1 + 1e-8
    exact = replace(look.candidates, error=torch.full_like(look.candidates.error, 1e-9))
    again = look.judge(exact)
    assert bool((again.peeled.sample_error[look.genuine] > 1e-9).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mismatch_is_too_large_however_vague_the_residual(seed: int) -> None:
    look = FirstLook(make_round(seed=seed, classes=10))
    # Errors so large that any gap is within them, and a next layer that is off by half.
    look.residual.bias_error += 1.0
    look.residual.next_error += 1.0
    look.residual.next_rows *= 1.5
    verdicts = look.judge()
    off = verdicts.mismatch > LOOSEST
    assert bool(off[look.genuine].any())
    assert not verdicts.accepted[off].any()


def scale_residual(look: FirstLook, factor: float) -> None:
    """Multiply the whole update by a constant, together with the loss."""
    names = ("rows", "bias", "next_rows", "bias_error", "row_error", "next_error")
    for name in names:
        setattr(look.residual, name, getattr(look.residual, name) * factor)
    sent = {name: getattr(look.residual.sent, name) * factor for name in names}
    look.residual.sent = replace(look.residual.sent, **sent)
    look.structure = Structure(look.residual.sent, len(look.round.x))
    look.structure.watch((look.candidates.pre_activations > 0).double().mean(0))
    look.backward = replace(look.backward, share=look.backward.share * factor)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([1e-12, 1e-3, 7.0, 1e9]))
def test_relativity(seed: int, factor: float) -> None:
    round_ = make_round(neurons=WIDE, seed=seed)
    plain, scaled = FirstLook(round_), FirstLook(round_)
    scale_residual(scaled, factor)
    one, other = plain.judge(), scaled.judge()
    assert one.accepted.tolist() == other.accepted.tolist()
    assert torch.equal(one.peeled.counts[one.accepted], other.peeled.counts[one.accepted])
    one, other = plain.judge_by_structure(), scaled.judge_by_structure()
    assert bool(one.accepted.any())
    assert one.accepted.tolist() == other.accepted.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_right(seed: int) -> None:
    round_ = make_round(seed=seed, classes=9)
    look = FirstLook(round_)
    verdicts = look.judge()
    truth = Truth.of(round_)
    accepted = verdicts.accepted
    assert torch.equal(verdicts.peeled.counts[accepted], truth.counts[look.who[accepted]])


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_are_certified_with_their_counts_and_no_others(seed: int) -> None:
    round_ = make_round(seed=seed, classes=5)
    x, y = torch.cat([round_.x, round_.x[:3]]), torch.cat([round_.y, (round_.y[:3] + 1) % 5])
    look = FirstLook(round_of(round_.model, x, y))
    twice = look.genuine & (look.who < 3)
    assert bool(twice.any())
    # No single label explains two samples, but both together do.
    assert not bool(look.judge().accepted[twice].any())
    counts = torch.nn.functional.one_hot(y, 5).double()
    both = counts[:8].clone()
    both[:3] += counts[8:]
    verdicts = look.judge(counts=both[look.who])
    assert bool(verdicts.accepted[look.genuine].all())
    assert not bool(verdicts.accepted[~look.genuine].any())


def traced(look: FirstLook, part: float) -> tuple[int, Tensor]:
    """Add a part of a mixture to a singleton; returns the neuron, alone in a mask too."""
    neuron = int(look.candidates.neurons[look.genuine][0])
    other = int(look.candidates.neurons[~look.genuine][0])
    mixed = part * look.residual.bias[neuron] / look.residual.bias[other]
    for rows in (look.residual.rows, look.residual.bias, look.residual.next_rows):
        rows[neuron] += mixed * rows[other]
    only = torch.zeros(len(look.residual.bias), dtype=torch.bool)
    only[neuron] = True
    return neuron, only


def test_a_trace_of_another_sample_is_told_apart_unless_asked_not_to() -> None:
    look = FirstLook(make_round(classes=10))
    # One part in 10^11 of a mixture: far above the tracked error, far below half the digits.
    candidates = look.gather(traced(look, 1e-11)[1])
    assert not look.judge(candidates).accepted.any()
    lenient = look.judge(candidates, strict=False)
    assert lenient.accepted.all()
    # What was let through carries its error along.
    assert float(lenient.peeled.sample_error[0]) > 1e-12


def test_half_the_digits_are_the_most_that_is_let_through() -> None:
    for part, accepted in ((1e-9, True), (1e-6, False)):
        look = FirstLook(make_round(classes=10))
        candidates = look.gather(traced(look, part)[1])
        assert len(candidates) == 1
        assert bool(look.judge(candidates, strict=False).accepted[0]) == accepted
        assert SLACK * float(candidates.error[0]) < part
