"""The end of a cascade: what it says of itself, and what does not fit together."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch

from gradpeel.decoder import Peeling, Recovery, Stage, peel
from gradpeel.noise import with_noise
from gradpeel.update import Update
from support import SmallRound, make_model, make_round, round_of, truths_of


def test_the_whole_batch() -> None:
    round_ = make_round()
    recovery = peel(round_.model, round_.update)
    assert recovery.complete
    assert not recovery.faint
    assert recovery.stopped == "the whole batch is recovered"
    assert recovery.explained == pytest.approx(1.0)
    assert recovery.mismatch < 1e-9
    assert not recovery.warnings
    assert recovery.batch_size.value == recovery.batch_size.proven == 8
    assert recovery.share == pytest.approx(1 / 8)


def test_without_the_tail_the_target_must_do() -> None:
    round_ = make_round(60, 400, 8)
    recovery = peel(round_.model, round_.update, knows_tail=False)
    assert recovery.complete
    assert recovery.explained == pytest.approx(1.0)
    # What stands behind it is nobody's business.
    gradients = dict(round_.update.gradients)
    gradients["2.bias"] = gradients["2.bias"] + 0.01
    assert peel(round_.model, Update(gradients, 8), knows_tail=False).complete
    assert not peel(round_.model, Update(gradients, 8)).complete


def test_an_update_of_zeros() -> None:
    round_ = make_round()
    nothing = Update({name: 0 * g for name, g in round_.update.gradients.items()}, 8)
    for knows_tail in (True, False):
        recovery = peel(round_.model, nothing, knows_tail=knows_tail)
        assert (
            recovery.stopped == "the gradient of the layer is zero: there is nothing to read in it"
        )
        assert len(recovery) == 0
        assert recovery.samples.shape == (0, 24)
        assert not recovery.complete


def test_nobody_stands_alone() -> None:
    model = make_model(24, 80, 4)
    with torch.no_grad():
        model.get_parameter("0.bias").add_(50.0)
    round_ = make_round()
    recovery = peel(model, round_of(model, round_.x, round_.y).update)
    assert recovery.stopped.startswith("no sample can be certified: no neuron isolates one")


def test_those_who_hide_behind_each_other() -> None:
    round_ = make_round(80, 300, 50, 6)
    for update in (round_.update, replace(round_.update, batch_size=None)):
        recovery = peel(round_.model, update, effort=0.0)
        assert len(recovery) == 16
        assert recovery.stopped == "no neuron isolates any of the other 34 samples"
        assert 0 < recovery.explained < 1


def test_nobody_counts_below_zero() -> None:
    # Copies are counted, but without a batch size only distinct samples are known of.
    round_ = make_round(80, 300, 50, 6)
    reached = round_.exposure.reached.nonzero()[:, 0]
    x, y = (torch.cat([part, *[part[reached]] * 4]) for part in (round_.x, round_.y))
    more = round_of(round_.model, x, y, reduction="sum")
    recovery = peel(more.model, replace(more.update, batch_size=None))
    # Everybody who is found is there five times: who weighs what is told by the lightest.
    assert set(truths_of(recovery.samples, more.x)) == set(reached.tolist())
    assert not recovery.complete
    counts = re.findall(r"-?\d+", recovery.stopped)
    assert all(int(count) > 0 for count in counts)
    assert recovery.batch_size.value is None


@pytest.mark.slow
def test_an_update_of_other_weights_is_told() -> None:
    for seed in range(3):
        round_ = make_round(60, 120, 8, seed=seed)
        other = make_model(60, 120, 4, seed=seed + 99)
        recovery = peel(other, round_.update)
        assert len(recovery) == 0
        assert any("does not fit the weights" in warning for warning in recovery.warnings)
    assert not peel(round_.model, round_.update).warnings


@pytest.mark.parametrize(("sigma", "told"), [(1e-6, False), (1e-2, False), (0.5, True)])
def test_an_update_that_is_mostly_noise_is_told(sigma: float, *, told: bool) -> None:
    round_ = make_round(60, 120, 8)
    recovery = peel(round_.model, with_noise(round_.update, sigma))
    assert any("is mostly noise" in warning for warning in recovery.warnings) == told


def test_more_distinct_samples_than_stated_are_told() -> None:
    # In a sum no scale contradicts the batch size, but the rank does, where it is asked for.
    round_ = make_round(60, 400, 9, 6, reduction="sum")
    recovery = peel(round_.model, replace(round_.update, batch_size=5), knows_tail=False)
    assert not recovery.complete
    assert recovery.rank == 9
    assert recovery.warnings


@pytest.fixture(scope="module")
def crowd() -> SmallRound:
    """Seven samples, three of them again with another label."""
    round_ = make_round(60, 400, 7, 6)
    x, y = torch.cat([round_.x, round_.x[:3]]), torch.cat([round_.y, (round_.y[:3] + 1) % 6])
    return round_of(round_.model, x, y)


def test_in_plain_values(crowd: SmallRound) -> None:
    recovery = peel(crowd.model, crowd.update, data_range=(-1.0, 2.0))
    values = recovery.as_dict()
    assert json.loads(json.dumps(values)) == values
    sizes = {f"batch_size_{name}" for name in ("stated", "by_weight", "proven")}
    assert {values[name] for name in sizes} == {10}
    assert values["candidates_tested"] == recovery.candidates_tested
    assert values["copies"] == 3
    assert values["unlabelled"] == 0
    assert values["complete"] is True
    assert values["warnings"] == []
    assert values["recovered_by_round"] == recovery.by_round
    assert sum(recovery.by_round) == len(recovery) == 7
    assert values["rounds"] == recovery.cascade_length == len(recovery.by_round)
    assert values["evidence"] == {
        "bias equation": 7,
        "next layer": 7,
        "structure": 3,
        "data range": 7,
    }
    without = peel(crowd.model, crowd.update, knows_tail=False).as_dict()
    assert without["unlabelled"] == 7
    assert without["copies"] == 0
    assert without["batch_size_by_weight"] is without["batch_size_proven"] is None


def test_labels_are_counted_with_all_copies(crowd: SmallRound) -> None:
    recovery = peel(crowd.model, crowd.update)
    counts = recovery.count_labels(6)
    assert counts.tolist() == torch.bincount(crowd.y, minlength=6).tolist()
    assert recovery.found == 10
    assert len(recovery) == 7


def test_asked_before_it_ran() -> None:
    round_ = make_round()
    recovery = Peeling(round_.model, round_.update).recovery()
    assert len(recovery) == 0
    assert not recovery.complete
    assert recovery.trace == ()
    assert recovery.kinds == ()


def layered(seed: int, *, knows_tail: bool = False) -> Recovery:
    """A cascade of several rounds that ends before all are found."""
    round_ = make_round(80, 300, 50, 6, seed=seed)
    return peel(round_.model, round_.update, knows_tail=knows_tail, effort=0.0)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("knows_tail", [True, False])
def test_the_trace_tells_of_every_look(seed: int, *, knows_tail: bool) -> None:
    recovery = layered(seed, knows_tail=knows_tail)
    # A cascade that ends with somebody left has looked as hard as it can, and found nobody.
    last = recovery.trace[-1]
    assert last.certified == 0
    assert last.stage > Stage.STRICT
    assert last.looked_at >= last.distinct > 0
    # Looks that certify nobody have the number of the next that does.
    numbers = [step.number for step in recovery.trace]
    assert numbers == sorted(numbers)
    assert [step.number for step in recovery.trace if step.certified] == list(
        range(1, recovery.cascade_length + 1)
    )
    assert last.number == recovery.cascade_length + 1
    assert recovery.by_round == [step.certified for step in recovery.trace if step.certified]
    assert len(recovery.stages) == len(recovery)
    by_number = {step.number: step.stage for step in recovery.trace if step.certified}
    assert [by_number[number] for number in recovery.rounds.tolist()] == list(recovery.stages)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("knows_tail", [True, False])
def test_candidates_of_stalled_looks_are_counted(seed: int, *, knows_tail: bool) -> None:
    recovery = layered(seed, knows_tail=knows_tail)
    # A trial takes up what the look before it has seen.
    looks = [step for step in recovery.trace if step.stage < Stage.SPECULATIVE]
    assert recovery.candidates_tested >= sum(step.distinct for step in looks)
    assert recovery.candidates_tested > sum(s.distinct for s in recovery.trace if s.certified)


def test_where_nobody_is_certified_candidates_were_tested_all_the_same() -> None:
    model = make_model(24, 80, 4)
    with torch.no_grad():
        model.get_parameter("0.bias").add_(50.0)
    round_ = make_round()
    recovery = peel(model, round_of(model, round_.x, round_.y).update, knows_tail=False)
    assert len(recovery) == 0
    assert recovery.candidates_tested > 0
    assert recovery.trace
    assert recovery.cascade_length == 0


def test_scores_are_digits_not_chances() -> None:
    round_ = make_round(60, 300, 8, 6)
    single, double = (
        peel(round_.model.to(dtype), round_of(round_.model.to(dtype), round_.x, round_.y).update)
        for dtype in (torch.float32, torch.float64)
    )
    assert bool((single.scores >= 9).all())
    assert float(double.scores.min()) > float(single.scores.max())
    assert bool(double.scores.isfinite().all())
