"""The benchmark of rounds of local training."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gradpeel as gp
from benchmarks import rounds
from benchmarks.rounds import (
    COMBINATIONS,
    DESIGNED,
    TRAININGS,
    Row,
    cells,
    changes,
    measure,
    summarise,
)
from gradpeel.datasets.standard import STANDARD
from gradpeel.networks import mlp


def test_every_part_of_the_list_covers_all_data_sets_and_spreads() -> None:
    every = [*cells()]
    untouched = len(COMBINATIONS) * len(STANDARD)
    assert len(set(every)) == len(every) == untouched + len(DESIGNED) * len(STANDARD)
    for part in (every[:untouched], every[untouched:]):
        first = part[: 3 * len(STANDARD)]
        assert set(Counter(cell.dataset for cell in first).values()) == {3}
        assert max(Counter(replace(cell, dataset="") for cell in first).values()) == 1
        assert {cell.setting for cell in first} == set(TRAININGS)


def test_changes_are_those_of_the_models_at_both_ends() -> None:
    rng = np.random.default_rng(0)
    model = mlp(6, 3, (40,), rng=rng, init="torch").double()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    audit = gp.audit(model, x, y, client=gp.Client(lr=5.0, local_steps=1))
    flips, hidden = changes(audit)
    optimiser = torch.optim.SGD(model.parameters(), lr=5.0)
    before = gp.exposure(model, x).grid
    torch.autograd.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimiser.step()
    assert flips == pytest.approx(float((gp.exposure(model, x).grid != before).double().mean()))
    assert flips > 0
    assert hidden == 0.0


@pytest.mark.slow
def test_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 40)), rng.integers(0, 5, 60)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    monkeypatch.setattr(rounds, "SAMPLES", 40)
    cell = replace(COMBINATIONS[0], dataset="mnist", batch_size=8, neurons=200)
    row = measure(cell, tmp_path)
    assert row.cell == cell
    assert row.recovered == 8
    assert not row.false
    assert [line[2:] for line in summarise([row])] == [["1", "1.000", "1.000", "1"]]
    assert isinstance(row, Row)
