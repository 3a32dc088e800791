"""Certified samples: a table with a row each."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.residual import Residual
from gradpeel.target import split
from support import make_round
from truth import Truth

NAMES = [field.name for field in fields(Peeled)]


def some() -> Peeled:
    round_ = make_round(batch=5)
    truth = Truth.of(round_)
    return truth.blurred(Residual(split(round_.model), round_.update), 1e-3)


def test_none_has_the_widths_of_some() -> None:
    peeled = some()
    none = Peeled.none(width=24, neurons=80, next_width=4, classes=4)
    assert len(none) == 0
    for name in NAMES:
        empty, full = getattr(none, name), getattr(peeled, name)
        assert empty.dtype == torch.float64
        assert empty.shape == (0, *full.shape[1:])


def test_joining_none_changes_nothing() -> None:
    peeled = some()
    joined = Peeled.joined([Peeled.none(width=24, neurons=80, next_width=4, classes=4), peeled])
    for name in NAMES:
        assert torch.equal(getattr(joined, name), getattr(peeled, name))


def test_picked_apart_and_joined_again() -> None:
    peeled = some()
    first, second = peeled.pick(torch.tensor([0, 1])), peeled.pick(torch.tensor([2, 3, 4]))
    assert (len(first), len(second)) == (2, 3)
    joined = Peeled.joined([first, second])
    swapped = Peeled.joined([second, first]).pick(torch.tensor([3, 4, 0, 1, 2]))
    for name in NAMES:
        assert torch.equal(getattr(joined, name), getattr(peeled, name))
        assert torch.equal(getattr(swapped, name), getattr(peeled, name))


def test_picks_by_mask_too() -> None:
    peeled = some()
    picked = peeled.pick(torch.tensor([False, True, False, True, False]))
    for name in NAMES:
        assert torch.equal(getattr(picked, name), getattr(peeled, name)[[1, 3]])


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ([3.0, 0.0, -4.0, 0.0], (25 / 2) ** 0.5),
        ([2.0, 2.0, 2.0, 2.0], 2.0),
        ([0.0, 0.0, 0.0, -5.0], 5.0),
        ([0.0, 0.0, 0.0, 0.0], 0.0),
    ],
)
def test_the_typical_sensitivity_is_over_the_neurons_that_fire(
    row: list[float], size: float
) -> None:
    assert typical(torch.tensor([row, [1.0] * 4])).tolist() == pytest.approx([size, 1.0])
