"""The certificate's formal guarantees, a test each, on rounds whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gradpeel as gp
from gradpeel.decoder.candidates import Candidates, gather
from gradpeel.decoder.certificate import Verdicts, certify
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulation import Probe
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import CHANCE, EXACT, LOOSEST
from gradpeel.target import Target
from support import SmallRound, make_round

SEEDS = range(8)


class Stage:
    """A fresh residual, its candidates, and which of them are real samples."""

    def __init__(self, round_: SmallRound, *, use_next: bool = True) -> None:
        self.round = round_
        self.target: Target = gp.split(round_.model)
        self.residual = Residual(self.target, round_.update, use_next=use_next)
        self.probe = Probe(
            round_.update.share,
            torch.ones(self.target.neurons, dtype=torch.float64) * self.residual.spread,
        )
        self.structure = Structure(self.residual.sent, len(round_.x))
        width = self.residual.rows.shape[1]
        everywhere = torch.ones(self.target.neurons, dtype=torch.bool)
        self.candidates = gather(self.residual, everywhere, torch.eye(width).double()[0])

    def judge(self, candidates: Candidates | None = None, *, strict: bool = True) -> Verdicts:
        return certify(
            self.candidates if candidates is None else candidates,
            self.residual,
            self.target.tail,
            self.probe,
            self.structure,
            strict=strict,
        )

    @property
    def genuine(self) -> Tensor:
        """Which candidates were read from a singleton of the activation grid."""
        return self.round.exposure.degrees[self.candidates.neurons] == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("use_next", [True, False])
def test_accepts_singletons_and_nothing_else(seed: int, *, use_next: bool) -> None:
    stage = Stage(make_round(seed=seed), use_next=use_next)
    assert 0 < int(stage.genuine.sum()) < len(stage.candidates)
    assert stage.judge().accepted.tolist() == stage.genuine.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_firing(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    own = stage.candidates.pre_activations.gather(1, stage.candidates.neurons[:, None])
    assert bool((own > 0).all())
    live = stage.residual.bias != 0
    silent = live & ~torch.isin(torch.arange(len(live)), stage.candidates.pairs[1])
    left_out = silent.nonzero()[:, 0]
    assert bool((stage.residual.own_pre_activations(left_out) <= 0).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_bias_equation_holds_at_every_isolating_neuron(seed: int) -> None:
    stage = Stage(make_round(seed=seed, batch=4), use_next=False)
    before = stage.judge()
    row, column = stage.candidates.pairs
    shared = [
        (r, c)
        for r, c in zip(row.tolist(), column.tolist(), strict=True)
        if before.accepted[r] and c != int(stage.candidates.neurons[r])
    ]
    assert shared, "no candidate is isolated twice: the test would show nothing"
    for candidate, other in shared:
        original = stage.residual.bias[other].clone()
        stage.residual.bias[other] *= 1 + 1e-6  # not the neuron the candidate was read from
        assert not stage.judge().accepted[candidate]
        stage.residual.bias[other] = original


@pytest.mark.parametrize("seed", SEEDS)
def test_next_layer_must_be_explained_entry_by_entry(seed: int) -> None:
    stage = Stage(make_round(seed=seed, classes=6))
    accepted = stage.judge().accepted.nonzero()[:, 0]
    for candidate in accepted.tolist():
        neuron = int(stage.candidates.neurons[candidate])
        for entry in range(6):
            original = stage.residual.next_rows[neuron, entry].clone()
            size = stage.residual.next_rows[neuron].abs().max()
            stage.residual.next_rows[neuron, entry] += 1e-6 * size
            assert not stage.judge().accepted[candidate]
            stage.residual.next_rows[neuron, entry] = original
    assert stage.judge().accepted[accepted].all()


@pytest.mark.parametrize("seed", SEEDS)
def test_support(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    verdicts = stage.judge()
    for candidate in verdicts.accepted.nonzero()[:, 0].tolist():
        fires = verdicts.peeled.sensitivities[candidate] != 0
        fires[stage.candidates.pairs[1]] = False
        somewhere = fires.nonzero()[:, 0]
        if not len(somewhere):
            continue
        neuron = int(somewhere[0])
        stage.residual.quiet[neuron] = True  # pretend its residual were zero already
        assert not stage.judge().accepted[candidate]
        stage.residual.quiet[neuron] = False


@pytest.mark.parametrize("use_next", [True, False])
def test_weight_of_evidence(*, use_next: bool) -> None:
    stage = Stage(make_round(classes=6), use_next=use_next)
    verdicts = stage.judge()
    assert bool((verdicts.chance[verdicts.accepted] <= CHANCE).all())
    # A single scalar equation that holds to six digits only: 6 labels x 2e-6 is not beyond chance,
    # and with a batch as large as the layer the structure of the update says nothing.
    stage.structure = Structure(stage.residual.sent, 80)
    stage.residual.bias_error += 1e-4 * stage.residual.bias.abs()
    stage.residual.bias *= 1 + 1e-6
    lonely = torch.bincount(stage.candidates.pairs[0], minlength=len(stage.candidates)) == 1
    again = stage.judge()
    if use_next:
        assert bool((verdicts.equations > 1)[verdicts.accepted].all())
    else:
        assert bool(lonely[verdicts.accepted].any())
        assert not again.accepted[lonely].any()


def test_entries_too_small_to_tell_are_no_evidence() -> None:
    # A certain but wrong prediction: p - e_y has two entries that count, whatever the classes.
    round_ = make_round(classes=8)
    with torch.no_grad():
        round_.model.get_parameter("2.weight").mul_(200.0)
    sure = SmallRound(
        round_.model, round_.x, round_.y, gp.local_update(round_.model, round_.x, round_.y)
    )
    stage = Stage(sure)
    verdicts = stage.judge()
    plain = Stage(make_round(classes=8)).judge()
    assert int(plain.equations[plain.accepted].min()) > 5
    assert int(verdicts.equations[verdicts.accepted].min()) <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_exactness(seed: int) -> None:
    stage = Stage(make_round(seed=seed))
    verdicts = stage.judge()
    assert bool((verdicts.peeled.sample_error[verdicts.accepted] <= EXACT).all())
    vague = replace(stage.candidates, error=torch.full_like(stage.candidates.error, 1.0))
    assert not stage.judge(vague).accepted.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_structure_makes_up_for_a_weak_equation(seed: int) -> None:
    stage = Stage(make_round(seed=seed), use_next=False)
    genuine = stage.genuine
    stage.residual.bias_error += 1e-4 * stage.residual.bias.abs()
    stage.residual.bias *= 1 + 1e-6
    verdicts = stage.judge()
    assert verdicts.accepted.tolist() == genuine.tolist()
    row = stage.candidates.pairs[0]
    lonely = genuine & (torch.bincount(row, minlength=len(genuine)) == 1)
    assert bool((verdicts.equations[lonely] > 10).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mismatch_is_too_large_however_vague_the_residual(seed: int) -> None:
    stage = Stage(make_round(seed=seed, classes=10))
    # Errors so large that any gap is within them, and a next layer that is off by half.
    stage.residual.bias_error += 1.0
    stage.residual.next_error += 1.0
    stage.residual.next_rows *= 1.5
    verdicts = stage.judge()
    off = verdicts.mismatch > LOOSEST
    assert bool(off[stage.genuine].any())
    assert not verdicts.accepted[off].any()


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([1e-12, 1e-3, 7.0, 1e9]))
def test_relativity(seed: int, factor: float) -> None:
    round_ = make_round(seed=seed)
    plain, scaled = Stage(round_), Stage(round_)
    for tensor in ("rows", "bias", "next_rows", "bias_error", "row_error", "next_error"):
        setattr(scaled.residual, tensor, getattr(scaled.residual, tensor) * factor)
    scaled.probe = replace(scaled.probe, share=scaled.probe.share * factor)
    one, other = plain.judge(), scaled.judge()
    assert one.accepted.tolist() == other.accepted.tolist()
    assert one.labels[one.accepted].tolist() == other.labels[one.accepted].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_right(seed: int) -> None:
    round_ = make_round(seed=seed, classes=9)
    stage = Stage(round_)
    verdicts = stage.judge()
    for candidate in verdicts.accepted.nonzero()[:, 0].tolist():
        fires = round_.exposure.grid[int(stage.candidates.neurons[candidate])]
        assert int(verdicts.labels[candidate]) == int(round_.y[fires])


def test_a_trace_of_another_sample_is_told_apart_unless_asked_not_to() -> None:
    stage = Stage(make_round(classes=10))
    genuine = stage.genuine.nonzero()[:, 0]
    candidate = int(genuine[0])
    neuron = int(stage.candidates.neurons[candidate])
    # One part in 10^11 of a mixture: far above the tracked error, far below half the digits.
    other = int(stage.candidates.neurons[~stage.genuine][0])
    mixed = 1e-11 * stage.residual.bias[neuron] / stage.residual.bias[other]
    for rows in (stage.residual.rows, stage.residual.bias, stage.residual.next_rows):
        rows[neuron] += mixed * rows[other]
    direction = torch.eye(stage.residual.rows.shape[1]).double()[0]
    only = torch.zeros(80, dtype=torch.bool)
    only[neuron] = True
    traced = gather(stage.residual, only, direction)
    assert not stage.judge(traced).accepted.any()
    lenient = stage.judge(traced, strict=False)
    assert lenient.accepted.all()
    # What was let through carries its error along.
    assert float(lenient.peeled.sample_error[0]) > 1e-12
