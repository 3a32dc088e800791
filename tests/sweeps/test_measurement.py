from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradpeel.datasets import Dataset, load
from gradpeel.errors import InputError
from gradpeel.sweeps import Cell, Measurement, measure

CELL = Cell(dataset="digits", design="soliton-data", weights="independent", batch_size=24)
SMALL = replace(CELL, neurons=120)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def small(digits: Dataset) -> Measurement:
    return measure(SMALL, digits)[0]


def test_a_cell_is_a_pure_function_of_its_settings(digits: Dataset) -> None:
    np.random.seed(1)  # noqa: NPY002 -- nobody's global generator may matter
    first = measure(SMALL, digits)[0]
    np.random.seed(2)  # noqa: NPY002
    assert measure(SMALL, digits)[0] == first


def test_it_reaches_the_bound(small: Measurement) -> None:
    assert small.recovered == small.reachable > 0
    assert small.false_certificates == small.wrong_labels == small.repeats == small.missed == 0


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"design": "passive", "weights": None},
        {"weights": "mirrored"},
        {"soliton": (0.3, 0.4)},
        {"neurons": 60},
        {"dtype": "float32"},
        {"noise": 1e-4},
        {"tail": (16,)},
        {"shuffle": False},
        {"lr": 0.1, "local_steps": 3},
    ],
    ids=str,
)
def test_settings_reach_the_audit(
    other: dict[str, Any], small: Measurement, digits: Dataset
) -> None:
    assert measure(replace(SMALL, **other), digits)[0] != small


def test_the_seed_draws_the_samples_unless_the_first_are_wanted(digits: Dataset) -> None:
    # With the first 24 samples swapped for others, only a batch of the first ones changes.
    x = digits.x_train.copy()
    x[:24] = 1 - x[:24]
    swapped = replace(digits, x_train=x)
    drawn, first = SMALL, replace(SMALL, shuffle=False)
    rng = np.random.default_rng([drawn.seed, 1])
    assert rng.permutation(len(x))[:24].min() >= 24  # the draw does not touch them
    assert measure(drawn, swapped)[0] == measure(drawn, digits)[0]
    assert measure(first, swapped)[0] != measure(first, digits)[0]


def test_a_batch_beyond_the_data_is_refused(digits: Dataset) -> None:
    with pytest.raises(InputError, match="batch_size=1201: digits has 1200 training samples"):
        measure(replace(SMALL, batch_size=1201), digits)
