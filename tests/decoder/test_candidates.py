"""Candidates and their merging, against comparing all pairs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradpeel.decoder.candidates import Candidates, _merge, gather
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.tolerances import MERGE
from gradpeel.target import split
from support import SmallRound, make_round
from truth import Truth


def unit(width: int, seed: int = 0) -> Tensor:
    direction = torch.randn(width, generator=torch.Generator().manual_seed(seed)).double()
    return torch.nn.functional.normalize(direction, dim=0)


def merge_slowly(coordinates: Tensor, error: Tensor) -> list[int]:
    """For each row the first before it that is as near as their errors allow, or itself.

    One that is much vaguer than another does not stand back for it.
    """
    lead: list[int] = []
    for i, row in enumerate(coordinates):
        near = (
            j
            for j in range(i)
            if lead[j] == j
            and float(error[i]) <= MERGE * float(error[j])
            and float((row - coordinates[j]).square().mean().sqrt())
            <= MERGE * float(error[i] + error[j])
        )
        lead.append(next(near, i))
    return lead


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors around a few centres, each with its own error; clearest first; and a direction."""
    width, centres = draw(st.integers(2, 30)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    who = torch.tensor(draw(st.lists(st.integers(0, centres - 1), min_size=1, max_size=25)))
    middle = torch.randn(centres, width, generator=generator, dtype=torch.float64)
    exponent = torch.randint(-14, -6, (len(who),), generator=generator)
    error = (10.0 ** exponent.double()).sort().values
    noise = torch.randn(len(who), width, generator=generator, dtype=torch.float64)
    return middle[who] + error[:, None] * noise, error, unit(width, draw(st.integers(0, 1000)))


def merge(coordinates: Tensor, error: Tensor, direction: Tensor) -> Tensor:
    """Merge vectors that are there."""

    def apart(first: Tensor, second: Tensor) -> Tensor:
        return rms(coordinates[first] - coordinates[second])

    return _merge(coordinates @ direction, error, apart)


@settings(max_examples=200)
@given(crowds())
def test_merging_equals_comparing_all_pairs(crowd: tuple[Tensor, Tensor, Tensor]) -> None:
    coordinates, error, direction = crowd
    assert merge(coordinates, error, direction).tolist() == merge_slowly(coordinates, error)


@settings(max_examples=60)
@given(crowds(), st.data())
def test_vectors_that_only_look_alike_along_the_direction_are_kept_apart(
    crowd: tuple[Tensor, Tensor, Tensor], data: st.DataObject
) -> None:
    coordinates, error, direction = crowd
    # Another vector with the very same key: it differs across the direction only.
    across = unit(len(direction), seed=77)
    across = across - direction * (direction @ across)
    twin = coordinates[0] + across * data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    coordinates = torch.cat([coordinates, twin[None]])
    error = torch.cat([error, error[-1:]])
    lead = merge(coordinates, error, direction)
    assert int(lead[-1]) == len(lead) - 1
    for i, j in enumerate(lead.tolist()):
        assert j <= i
        assert lead[j] == j
        gap = (coordinates[i] - coordinates[j]).square().mean().sqrt()
        assert gap <= MERGE * (error[i] + error[j])


def test_how_near_is_near() -> None:
    error = torch.tensor([1e-9, 3e-9], dtype=torch.float64)
    base = torch.ones(2, 50, dtype=torch.float64)
    for factor, lead in ((0.9, [0, 0]), (1.1, [0, 1])):
        shifted = base.clone()
        shifted[1] += factor * MERGE * 4e-9
        assert merge(shifted, error, unit(50)).tolist() == lead


def test_a_vague_one_does_not_stand_back_for_a_clear_one() -> None:
    # It agrees with anything, and the clear one may be a mixture.
    same = torch.ones(2, 50, dtype=torch.float64)
    for factor, lead in ((0.9, [0, 0]), (1.1, [0, 1])):
        error = torch.tensor([1e-9, factor * MERGE * 1e-9], dtype=torch.float64)
        assert merge(same, error, unit(50)).tolist() == lead


def test_merging_nothing_and_one() -> None:
    none = torch.zeros(0, 3, dtype=torch.float64)
    assert merge(none, none[:, 0], unit(3)).tolist() == []
    assert merge(torch.ones(1, 3).double(), torch.ones(1).double(), unit(3)).tolist() == [0]


def pools_of(candidates: Candidates) -> list[tuple[int, ...]]:
    return candidates.isolating(torch.arange(len(candidates)))


def gathered(round_: SmallRound, among: Tensor | None = None) -> tuple[Residual, Candidates]:
    residual = Residual(split(round_.model), round_.update)
    everywhere = torch.ones(len(residual.bias), dtype=torch.bool)
    direction = unit(residual.rows.shape[1])
    return residual, gather(residual, everywhere if among is None else among, direction)


@pytest.mark.parametrize("features", [12, 60], ids=["input space", "neuron space"])
@pytest.mark.parametrize("seed", range(5))
class TestGather:
    def test_neurons_that_isolate_one_sample_are_pooled(self, features: int, seed: int) -> None:
        round_ = make_round(features=features, neurons=50, batch=6, seed=seed)
        exposure = round_.exposure
        _, candidates = gathered(round_)
        pools = {frozenset(pool) for pool in pools_of(candidates)}
        for sample in exposure.isolated.nonzero()[:, 0].tolist():
            own = exposure.singletons & exposure.grid[:, sample]
            assert frozenset(own.nonzero()[:, 0].tolist()) in pools

    def test_a_candidate_fires_at_its_own_neuron(self, features: int, seed: int) -> None:
        residual, candidates = gathered(
            make_round(features=features, neurons=50, batch=6, seed=seed)
        )
        live = residual.live(torch.ones(50, dtype=torch.bool))
        z = residual.pre_activations(residual.coordinates(live))
        firing = live[z[torch.arange(len(live)), live] > 0]
        assert 0 < len(firing) < len(live), "every candidate fires: the test shows nothing"
        assert sorted(candidates.pairs[1].tolist()) == firing.tolist()

    def test_the_clearest_of_a_group_leads_it(self, features: int, seed: int) -> None:
        residual, candidates = gathered(
            make_round(features=features, neurons=50, batch=6, seed=seed)
        )
        assert bool((candidates.error.diff() >= 0).all())
        pooled = 0
        for i, neuron in enumerate(candidates.neurons.tolist()):
            isolating = pools_of(candidates)[i]
            assert neuron in isolating
            errors = residual.relative_error(torch.tensor(isolating))
            assert float(candidates.error[i]) == pytest.approx(float(errors.min()), rel=1e-12)
            pooled += len(isolating) > 1
        assert pooled, "no candidate was merged: the test shows nothing"
        rows, columns = candidates.pairs
        assert bool((rows.diff() >= 0).all())
        assert len(set(columns.tolist())) == len(columns)

    def test_what_is_read_off(self, features: int, seed: int) -> None:
        residual, candidates = gathered(
            make_round(features=features, neurons=50, batch=6, seed=seed)
        )
        assert torch.equal(candidates.coordinates, residual.coordinates(candidates.neurons))
        z = residual.pre_activations(candidates.coordinates)
        assert torch.equal(candidates.pre_activations, z)

    def test_some_are_picked(self, features: int, seed: int) -> None:
        _, candidates = gathered(make_round(features=features, neurons=50, batch=6, seed=seed))
        mask = torch.arange(len(candidates)) % 3 != 1
        some, kept = candidates.pick(mask), mask.nonzero()[:, 0].tolist()
        assert len(some) == len(kept) < len(candidates)
        for part in ("neurons", "coordinates", "pre_activations", "error"):
            assert torch.equal(getattr(some, part), getattr(candidates, part)[mask])
        assert pools_of(some) == [pools_of(candidates)[i] for i in kept]
        assert some.isolating(torch.tensor([1])) == [pools_of(candidates)[kept[1]]]

    def test_only_the_neurons_asked_for(self, features: int, seed: int) -> None:
        round_ = make_round(features=features, neurons=50, batch=6, seed=seed)
        some = torch.arange(50) % 3 == 0
        everywhere, among = gathered(round_)[1], gathered(round_, some)[1]
        expected = [j for j in everywhere.pairs[1].tolist() if j % 3 == 0]
        assert sorted(among.pairs[1].tolist()) == sorted(expected)
        assert len(gathered(round_, torch.zeros(50, dtype=torch.bool))[1]) == 0

    def test_after_peeling_new_samples_show(self, features: int, seed: int) -> None:
        round_ = make_round(features=features, neurons=50, batch=8, seed=seed)
        rounds = round_.exposure.rounds
        residual, _ = gathered(round_)
        truth = Truth.of(round_)
        residual.subtract(truth.peeled(residual).pick(rounds == 1))
        everywhere = torch.ones(50, dtype=torch.bool)
        candidates = gather(residual, everywhere, unit(residual.rows.shape[1]))
        left = round_.exposure.grid[:, rounds != 1].sum(1)
        assert set(candidates.pairs[1].tolist()) <= set(left.nonzero()[:, 0].tolist())
        exact = truth.peeled(residual).coordinates
        for sample in (rounds == 2).nonzero()[:, 0].tolist():
            gap = (candidates.coordinates - exact[sample]).norm(dim=1)
            assert float(gap.min()) <= 1e-9 * float(exact[sample].norm())
