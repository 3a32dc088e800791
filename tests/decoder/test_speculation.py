"""Samples subtracted on trial: confirmed by what follows, or taken back without a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradpeel.decoder import Peeling, Recovery, judging, peel
from gradpeel.decoder.candidates import Candidates, Readings, gather
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.tolerances import CHANCE, SPECULATIVE
from gradpeel.exposure import Exposure
from support import SmallRound, make_round, recovered, truths_of

Who = Callable[[Candidates], Tensor]


def layered(seed: int) -> SmallRound:
    """A round in which samples hide behind others, and some behind each other."""
    return make_round(80, 300, 50, 6, seed=seed)


def is_sample(round_: SmallRound, sample: int) -> Who:
    """Which candidates are a given sample."""

    def who(candidates: Candidates) -> Tensor:
        gap = (candidates.coordinates - round_.x[sample]).abs().amax(1)
        return gap < 1e-3

    return who


def doubt(monkeypatch: pytest.MonkeyPatch, who: Who, chance: float) -> None:
    """Let the certificate find too little evidence for some, and nothing against them."""

    def everybody(readings: Readings, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return torch.ones(len(readings), dtype=torch.bool), None

    monkeypatch.setattr(judging, "glance", everybody)
    for name in ("certify_by_tail", "certify_by_structure"):
        certify = getattr(judging, name)

        def doubting(
            candidates: Candidates, *given: Any, certify: Any = certify, **named: Any
        ) -> Verdicts:
            verdicts: Verdicts = certify(candidates, *given, **named)
            marked = who(candidates)
            return replace(
                verdicts,
                accepted=verdicts.accepted & ~marked,
                sound=verdicts.sound | marked,
                chance=torch.where(marked, chance, verdicts.chance),
                mismatch=torch.where(marked, 1e-10, verdicts.mismatch),
                peeled=replace(
                    verdicts.peeled,
                    sample_error=torch.where(marked, 1e-10, verdicts.peeled.sample_error),
                ),
            )

        monkeypatch.setattr(judging, name, doubting)


def hidden_behind(round_: SmallRound) -> tuple[int, int]:
    """A sample that falls first, and how many cannot be reached while it stands."""
    exposed = round_.exposure
    best = (0, 0)
    for sample in exposed.isolated.nonzero()[:, 0].tolist():
        # Neurons that it fires are no use while it stands.
        left = Exposure.of(exposed.grid | exposed.grid[:, [sample]]).reached
        best = max(best, (int((exposed.reached & ~left).sum()) - 1, sample))
    return best[1], best[0]


def same(one: Recovery, other: Recovery) -> None:
    assert sorted(one.sources.tolist()) == sorted(other.sources.tolist())
    order, again = one.sources.argsort(), other.sources.argsort()
    torch.testing.assert_close(one.samples[order], other.samples[again], rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_what_follows_from_a_sample_speaks_for_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = layered(seed)
    plain = peel(round_.model, round_.update)
    sample, hidden = hidden_behind(round_)
    assert hidden >= 1
    doubt(monkeypatch, is_sample(round_, sample), 1e-7)
    recovery = peel(round_.model, round_.update)
    assert recovered(recovery, round_) == recovered(plain, round_)
    place = truths_of(recovery.samples, round_.x).index(sample)
    for i, kinds in enumerate(recovery.evidence):
        assert (Evidence.FOLLOWERS in kinds) == (i == place)
    assert bool((recovery.chances <= CHANCE).all())
    assert "what follows from it" in recovery.kinds


@pytest.mark.parametrize("seed", range(4))
def test_little_evidence_is_not_no_evidence(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    round_ = layered(seed)
    sample, hidden = hidden_behind(round_)
    doubt(monkeypatch, is_sample(round_, sample), 2 * SPECULATIVE)
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_)
    assert sample not in found
    assert len(found) <= int(round_.exposure.reached.sum()) - 1 - hidden


def mixtures(round_: SmallRound) -> set[int]:
    """A few neurons whose candidates, at the end of the cascade, are of several samples each."""
    cascade = Peeling(round_.model, round_.update)
    list(cascade)
    residual = cascade._residual
    left = gather(residual, torch.ones_like(residual.quiet), cascade._direction)
    assert len(left) >= 3
    return set(left.neurons[:3].tolist())


def read_from(neurons: set[int]) -> Who:
    def who(candidates: Candidates) -> Tensor:
        return torch.tensor([j in neurons for j in candidates.neurons.tolist()], dtype=torch.bool)

    return who


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("refining", [True, False])
def test_a_mixture_is_taken_back(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, refining: bool
) -> None:
    if not refining:
        monkeypatch.setattr(Peeling, "_refine", lambda _, **__: False)
    round_ = layered(seed)
    plain = peel(round_.model, round_.update)
    false = mixtures(round_)
    doubt(monkeypatch, read_from(false), 1e-6)
    cascade = Peeling(round_.model, round_.update)
    entered = [source for step in cascade for source in step.sources.tolist()]
    recovery = cascade.recovery()
    # All were subtracted on trial, each of them once.
    assert set(entered) & false == false
    assert len(entered) == len(set(entered))
    assert not set(recovery.sources.tolist()) & false
    assert not any(Evidence.FOLLOWERS in kinds for kinds in recovery.evidence)
    recovered(recovery, round_)
    same(recovery, plain)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_trace_tells_of_nobody_who_was_taken_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = layered(seed)
    doubt(monkeypatch, read_from(mixtures(round_)), 1e-6)
    recovery = peel(round_.model, round_.update)
    assert sum(step.certified for step in recovery.trace) == len(recovery)


@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_reported_on_trial(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked before it is settled, too.
    round_ = layered(seed)
    sample, _ = hidden_behind(round_)
    doubt(monkeypatch, is_sample(round_, sample), 0.5 * SPECULATIVE)
    cascade = Peeling(round_.model, round_.update)
    for _ in cascade:
        assert bool((cascade.recovery().chances <= CHANCE).all())


def test_with_two_classes_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # All gradients are parallel there: what follows confirms nothing.
    round_ = make_round(80, 300, 50, 2)
    sample, _ = hidden_behind(round_)
    doubt(monkeypatch, is_sample(round_, sample), 1e-6)
    assert sample not in recovered(peel(round_.model, round_.update), round_)


@pytest.mark.parametrize("kind", ["narrow layer", "no tail"])
def test_where_nothing_could_confirm_it_nothing_is_tried(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = make_round(24, 60, 8, 6) if kind == "narrow layer" else layered(0)
    sample, _ = hidden_behind(round_)
    doubt(monkeypatch, is_sample(round_, sample), 1e-6)
    if kind == "no tail":
        recovery = peel(round_.model, round_.update, loss=None)
    else:
        recovery = peel(round_.model, round_.update)
    assert sample not in recovered(recovery, round_)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_what_wrong_samples_did_to_others_is_taken_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = layered(seed)
    plain = peel(round_.model, round_.update)
    doubt(monkeypatch, read_from(mixtures(round_)), 1e-6)
    refine, spoilt = Peeling._refine, []

    def spoiling(self: Peeling, **named: bool) -> bool:
        done = refine(self, **named)
        ledger = self._ledger
        if bool((ledger.chances > CHANCE).any()):
            coordinates = ledger.peeled.coordinates.clone()
            coordinates[0] += 1.0
            ledger.peeled = replace(ledger.peeled, coordinates=coordinates)
            spoilt.append(len(ledger))
        return done

    monkeypatch.setattr(Peeling, "_refine", spoiling)
    recovery = peel(round_.model, round_.update)
    assert spoilt
    assert -1 not in truths_of(recovery.samples, round_.x)
    assert set(plain.sources.tolist()) <= set(recovery.sources.tolist())
