"""The ledger: who is known already, and samples by substitution."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.ledger import Ledger
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.tolerances import CHANCE, NOTHING, SAME, SLACK, STANDS_OUT
from gradpeel.target import split
from support import SmallRound, make_round
from truth import Truth

KINDS = (Evidence.BIAS, Evidence.BIAS | Evidence.NEXT_LAYER, Evidence.STRUCTURE)
BOTH_SPACES = pytest.mark.parametrize("features", [12, 60], ids=["input space", "neuron space"])


class Book:
    """A round whose samples are entered in the order in which the grid gives them away."""

    def __init__(self, round_: SmallRound) -> None:
        self.round = round_
        self.truth = Truth.of(round_)
        self.residual = Residual(split(round_.model), round_.update)
        self.peeled = self.truth.peeled(self.residual)
        width = self.residual.rows.shape[1]
        self.ledger = Ledger(
            round_.update.gradients["0.weight"],
            width=width,
            scale=self.residual.scale,
            next_width=self.truth.v.shape[1],
            classes=self.truth.counts.shape[1],
        )
        self.order: list[int] = []

    def sources(self, number: int) -> dict[int, list[int]]:
        """The samples that fall in a round, and the neurons that isolate each."""
        exposure = self.round.exposure
        left = exposure.grid[:, (exposure.rounds >= number) | ~exposure.reached].sum(1) == 1
        return {
            sample: (left & exposure.grid[:, sample]).nonzero()[:, 0].tolist()
            for sample in (exposure.rounds == number).nonzero()[:, 0].tolist()
        }

    def candidates(self, number: int) -> Candidates:
        found = self.sources(number)
        who = torch.tensor(list(found))
        pairs = [(i, j) for i, pool in enumerate(found.values()) for j in pool]
        row, column = torch.tensor(pairs).T
        # Of the neurons that isolate a sample, the one where most of the sum is its own.
        share = self.truth.c.abs() / self.truth.c.abs().sum(0)
        best = [pool[int(share[i, pool].argmax())] for i, pool in found.items()]
        return Candidates(
            torch.tensor(best),
            (row, column),
            torch.full((len(who),), 1e-14, dtype=torch.float64),
            self.peeled.coordinates[who],
            self.truth.z[who],
        )

    def enter(self, number: int) -> None:
        who = torch.tensor(list(self.sources(number)))
        some = torch.arange(len(who))
        verdicts = Verdicts(
            accepted=some >= 0,
            sound=some >= 0,
            vague=some < 0,
            mismatch=1e-13 * who.double(),
            chance=1e-12 * who.double(),
            equations=10 * who,
            evidence=tuple(KINDS[i % 3] for i in who.tolist()),
            peeled=self.peeled.pick(who),
        )
        # Chosen out of order, as the peeling loop may do.
        chosen = some.flip(0)
        candidates = self.candidates(number)
        own = self.truth.c[who, candidates.neurons][chosen]
        peeled = self.ledger.add(candidates, verdicts, chosen, own, number)
        assert torch.equal(peeled.coordinates, self.peeled.coordinates[who.flip(0)])
        self.order += who.flip(0).tolist()


def books(features: int, *, seed: int = 0, batch: int = 8) -> Book:
    return Book(make_round(features=features, neurons=50, batch=batch, seed=seed))


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(5))
def test_substitution_gives_the_samples(features: int, seed: int) -> None:
    step, whole = books(features, seed=seed), books(features, seed=seed)
    rounds = step.round.exposure.rounds_count
    assert rounds > 1
    for number in range(1, rounds + 1):
        step.enter(number)
        whole.enter(number)
        truth = step.truth.rows[step.order]
        torch.testing.assert_close(step.ledger.rows(), truth, rtol=1e-7, atol=1e-9)
    assert len(step.ledger) == len(step.order) == int(step.round.exposure.reached.sum())
    # Asked after every round or once at the end, the answer is the same.
    torch.testing.assert_close(whole.ledger.rows(), step.ledger.rows(), rtol=1e-7, atol=1e-9)


@BOTH_SPACES
def test_what_is_entered_stands_in_order(features: int) -> None:
    book = books(features)
    book.enter(1)
    book.enter(2)
    ledger, order = book.ledger, torch.tensor(book.order)
    assert ledger.labels.tolist() == book.round.y[order].tolist()
    assert ledger.rounds.tolist() == book.round.exposure.rounds[order].tolist()
    assert ledger.residuals.tolist() == (1e-13 * order.double()).tolist()
    assert ledger.chances.tolist() == (1e-12 * order.double()).tolist()
    assert ledger.equations.tolist() == (10 * order).tolist()
    assert ledger.evidence == [KINDS[i % 3] for i in book.order]
    assert ledger.copies == len(order)
    assert torch.equal(ledger.peeled.sensitivities, book.peeled.sensitivities[order])
    pools = book.sources(1) | book.sources(2)
    assert [sorted(pool) for pool in ledger.isolating] == [pools[i] for i in book.order]
    assert all(j in pools[i] for i, j in zip(book.order, ledger.sources.tolist(), strict=True))


@BOTH_SPACES
def test_samples_are_read_before_they_are_entered(features: int) -> None:
    book = books(features)
    for number in (1, 2):
        who = torch.tensor(list(book.sources(number)))
        candidates = book.candidates(number)
        own = book.truth.c[who, candidates.neurons]
        chosen = torch.arange(len(who)).flip(0)
        read = book.ledger.read(candidates, chosen, own.flip(0))
        torch.testing.assert_close(read, book.truth.rows[who.flip(0)], rtol=1e-7, atol=1e-9)
        book.enter(number)


def test_an_empty_ledger() -> None:
    ledger = books(60).ledger
    assert len(ledger) == 0
    assert ledger.rows().shape == (0, 60)
    assert ledger.labels.tolist() == []
    assert ledger.copies == 0
    assert len(ledger.followers(torch.ones(50).double())) == 0
    some = torch.ones(3, 50).double()
    error = torch.full((3,), 1e-3).double()
    assert ledger.knows(some, error).tolist() == [False] * 3
    assert ledger.distinct(some[:0], error[:0]).tolist() == []


@BOTH_SPACES
def test_knows_who_was_entered(features: int) -> None:
    book = books(features)
    book.enter(1)
    error = torch.full((8,), 1e-12).double()
    expected = book.round.exposure.rounds == 1
    assert book.ledger.knows(book.peeled.coordinates, error).tolist() == expected.tolist()
    # Even where it is read quite inexactly the second time.
    off = 1e-4 * book.residual.scale
    generator = torch.Generator().manual_seed(0)
    again = torch.randn(book.peeled.coordinates.shape, generator=generator, dtype=torch.float64)
    again = book.peeled.coordinates + off * again
    assert not book.ledger.knows(again, error).any()
    assert book.ledger.knows(again, error + 1e-4).tolist() == expected.tolist()


@BOTH_SPACES
def test_a_trace_of_an_entry_is_no_difference(features: int) -> None:
    # Twins this close are one sample, however exactly they are read.
    book = books(features)
    book.enter(1)
    error = torch.full((len(book.ledger),), 1e-15).double()
    known = book.ledger.peeled.coordinates
    generator = torch.Generator().manual_seed(0)
    noise = book.residual.scale * torch.randn(known.shape, generator=generator, dtype=known.dtype)
    assert bool(book.ledger.knows(known + 5e-6 * noise, error).all())
    assert not bool(book.ledger.knows(known + 5e-5 * noise, error).any())


def same_slowly(
    these: Tensor, error: Tensor, those: Tensor, other: Tensor, scale: float
) -> list[list[bool]]:
    """Within their errors, a vague one not too generously."""
    agree = []
    for a, e in zip(these, error.tolist(), strict=True):
        row = []
        for b, o in zip(those, other.tolist(), strict=True):
            both = max(e, o)
            tolerance = max(min(SLACK * both, 0.03), NOTHING * both, SAME)
            row.append(float((a - b).square().mean().sqrt()) <= tolerance * scale)
        agree.append(row)
    return agree


@cache
def first_round() -> Book:
    book = books(12)
    book.enter(1)
    return book


@settings(max_examples=80)
@given(st.data())
def test_same_means_close_in_every_direction(data: st.DataObject) -> None:
    book = first_round()
    known = book.ledger.peeled.coordinates
    scale = book.residual.scale
    count = data.draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    near = known[torch.randint(len(known), (count,), generator=generator)]
    off = 10.0 ** torch.randint(-9, 0, (count,), generator=generator).double()
    error = 10.0 ** torch.randint(-14, -1, (count,), generator=generator).double()
    noise = torch.randn(near.shape, generator=generator, dtype=torch.float64)
    these = near + scale * off[:, None] * noise
    exact = book.ledger.peeled.sample_error
    knows = [any(row) for row in same_slowly(these, error, known, exact, scale)]
    assert book.ledger.knows(these, error).tolist() == knows
    pairs = same_slowly(these, error, these, error, scale)
    first = [not any(row[:i]) for i, row in enumerate(pairs)]
    assert book.ledger.distinct(these, error).tolist() == first


def test_vectors_that_share_their_key_are_told_apart() -> None:
    book = books(12)
    book.enter(1)
    known = book.ledger.peeled.coordinates[:1]
    across = torch.zeros_like(known)
    across[0, 0], across[0, 1] = 1.0, -1.0  # the ledger compares along (1, ..., 1) first
    error = torch.full((1,), 1e-12).double()
    assert book.ledger.knows(known, error).all()
    assert not book.ledger.knows(known + across, error).any()


def whole(features: int, *, seed: int = 0) -> Book:
    book = books(features, seed=seed)
    for number in range(1, book.round.exposure.rounds_count + 1):
        book.enter(number)
    return book


def test_copies_and_labels_follow_the_counts() -> None:
    ledger = whole(12).ledger
    counts = torch.zeros_like(ledger.peeled.counts)
    counts[0, 2], counts[1, 0], counts[1, 3] = 1.0, 1.0, 2.0
    ledger.peeled = replace(ledger.peeled, counts=counts)
    # Where nothing is known of the labels, there is one copy at least.
    assert ledger.labels.tolist() == [2, 3, *[-1] * (len(ledger) - 2)]
    assert ledger.copies == 1 + 3 + (len(ledger) - 2)


@BOTH_SPACES
@pytest.mark.parametrize("seed", range(5))
def test_those_who_were_read_behind_a_sample_speak_for_it(features: int, seed: int) -> None:
    book = whole(features, seed=seed)
    ledger, c = book.ledger, book.truth.c[book.order]
    error = book.residual.row_error
    expected = [
        sum(
            float(c[i, source].abs()) > STANDS_OUT * float(error[source])
            for source in ledger.sources[i + 1 :].tolist()
        )
        for i in range(len(ledger))
    ]
    assert sum(expected), "nobody was read behind another: the test shows nothing"
    assert ledger.followers(error).tolist() == expected
    # A mark below the error says nothing,
    assert not ledger.followers(error + c.abs().max()).any()
    # nor one below what the follower's own equations are off by,
    exact, ledger.residuals = ledger.residuals, torch.full_like(ledger.residuals, 1e6)
    assert not ledger.followers(error).any()
    ledger.residuals = exact
    # nor a follower that little speaks for itself.
    ledger.chances = torch.full_like(ledger.chances, 2 * CHANCE)
    assert not ledger.followers(error).any()


def test_what_followed_is_evidence_where_there_was_too_little() -> None:
    ledger = whole(12).ledger
    ledger.chances[0], ledger.chances[1], ledger.chances[2] = 1e-3, 1e-3, 1e-12
    luck = torch.full_like(ledger.chances, 1e-8)
    luck[1] = 1.0
    before = list(ledger.evidence)
    ledger.confirm(luck)
    assert ledger.chances[:3].tolist() == pytest.approx([1e-11, 1e-3, 1e-12])
    assert ledger.evidence == [before[0] | Evidence.FOLLOWERS, *before[1:]]


@BOTH_SPACES
def test_struck_out_samples_leave_no_trace(features: int) -> None:
    book = whole(features)
    ledger, samples = book.ledger, book.ledger.rows().clone()
    kept = torch.arange(len(ledger)) % 3 != 1
    places = kept.nonzero()[:, 0].tolist()
    before = {
        name: getattr(ledger, name)
        for name in ("sources", "rounds", "residuals", "chances", "equations", "labels")
    }
    pools, kinds = list(ledger.isolating), list(ledger.evidence)
    ledger.keep(kept)
    assert len(ledger) == len(places)
    for name, old in before.items():
        assert torch.equal(getattr(ledger, name), old[kept])
    assert ledger.isolating == [pools[i] for i in places]
    assert ledger.evidence == [kinds[i] for i in places]
    assert torch.equal(ledger.peeled.sensitivities, book.peeled.sensitivities[book.order][kept])
    # What is left keeps its numbers: they are not solved for again.
    torch.testing.assert_close(ledger.rows(), samples[kept], rtol=0, atol=1e-12)


@BOTH_SPACES
def test_earlier_samples_are_put_back_to_what_was_known_of_them(features: int) -> None:
    book = books(features)
    book.enter(1)
    first = len(book.ledger)
    trusted = book.ledger.values()
    rows = book.ledger.rows().clone()
    for number in range(2, book.round.exposure.rounds_count + 1):
        book.enter(number)
    later = book.ledger.rows()[first:].clone()
    assert len(later)
    # Something spoils them all.
    peeled = book.ledger.peeled
    book.ledger.peeled = replace(peeled, coordinates=peeled.coordinates + 1.0)
    book.ledger.revert(trusted)
    assert torch.equal(book.ledger.peeled.coordinates[:first], trusted[0].coordinates)
    assert torch.equal(book.ledger.peeled.coordinates[first:], peeled.coordinates[first:] + 1.0)
    torch.testing.assert_close(book.ledger.rows()[:first], rows, rtol=0, atol=1e-12)
    torch.testing.assert_close(book.ledger.rows()[first:], later, rtol=0, atol=1e-12)


def test_numbers_are_those_the_candidate_was_read_with() -> None:
    # Whatever the sensitivities at the neurons where samples were read are computed to be.
    book = books(12)
    book.enter(1)
    peeled = book.ledger.peeled
    book.ledger.peeled = replace(peeled, sensitivities=peeled.sensitivities * 1.1)
    torch.testing.assert_close(book.ledger.rows(), peeled.coordinates)
