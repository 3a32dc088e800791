from __future__ import annotations

import dataclasses

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradpeel import Audit, audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.networks import mlp
from gradpeel.reporting.matching import evenly, found_at, rounds_of
from gradpeel.scoring import Outcome


def test_every_sample_is_where_it_was_found(part: Audit) -> None:
    places = found_at(part)
    assert (places >= 0).sum() == part.score.recovered
    for sample, place in enumerate(places.tolist()):
        if place >= 0:
            torch.testing.assert_close(part.recovery.samples[place], part.x[sample])
            assert rounds_of(part)[sample] == part.recovery.rounds[place]
        else:
            assert rounds_of(part)[sample] == 0


def test_of_repeats_the_first_counts_and_false_ones_do_not(whole: Audit) -> None:
    recovered = [Outcome.RECOVERED if sample in {0, 3} else Outcome.MISSED for sample in range(8)]
    score = dataclasses.replace(
        whole.score,
        matches=torch.tensor([3, -1, 3, 0, -1, -1, -1, -1]),
        outcomes=tuple(recovered),
    )
    places = found_at(dataclasses.replace(whole, score=score))
    np.testing.assert_array_equal(places, [3, -1, -1, 0, -1, -1, -1, -1])


def test_near_copies_are_where_the_one_they_cannot_be_told_from_is(digits: Dataset) -> None:
    batch = draw_batch(digits, 4)
    twin = batch.x[:1] + 1e-7
    model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    found = audit(model, torch.cat([batch.x, twin]), torch.cat([batch.y, batch.y[:1]]))
    alone = dataclasses.replace(
        found.score, matches=found.score.matches.where(found.score.matches < 4, -1)
    )
    places = found_at(dataclasses.replace(found, score=alone))
    assert found.score.recovered == 5
    assert places[4] == places[0] >= 0


def test_copies_are_where_the_one_certificate_is(doubled: Audit) -> None:
    places = found_at(doubled)
    np.testing.assert_array_equal(places[8:], places[:3])
    np.testing.assert_array_equal(np.sort(places[:8]), np.arange(8))
    np.testing.assert_array_equal(rounds_of(doubled)[8:], rounds_of(doubled)[:3])


@given(st.integers(-5, 5), st.integers(0, 300), st.integers(2, 40))
def test_evenly(first: int, more: int, most: int) -> None:
    last = first + more
    chosen = evenly(first, last, most)
    assert len(chosen) == min(most, more + 1)
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (first, last)
    steps = np.diff(chosen)
    assert not len(steps) or steps.max() - steps.min() <= 1
