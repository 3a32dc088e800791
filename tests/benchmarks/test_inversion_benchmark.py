"""The benchmark of inversion measures what it says it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import inversion


@pytest.mark.slow
def test_pictures_are_audited_and_reconstructed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shares = rng.random((40, 8, 8)) ** rng.uniform(0.2, 5.0, size=(40, 1, 1))
    x = (255 * shares).astype(np.uint8)
    y = rng.integers(0, 4, size=40)
    np.savez(tmp_path / "mnist.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    cell = inversion.Cell(dataset="mnist", batch_size=2)
    row = inversion.measure(cell, tmp_path)
    assert row.cell == cell
    assert 0 <= row.clear <= row.recovered <= 2
    assert 0 <= row.least <= row.median
    assert len(next(inversion.tabulate([row]))) == len(inversion.TITLES)
    assert "mnist: " in next(inversion.findings([row]))


def test_goals_are_those_of_the_data_set() -> None:
    row = inversion.Row(
        dataset="mnist", recovered=64, determined=64, free=0.0, clear=61, least=10.0, median=130.0,
        ssim=1.0, mismatch=1e-7, seconds=1.0,
    )  # fmt: skip
    assert row.reaches_goals
    assert not replace(row, clear=60).reaches_goals
    assert not replace(row, seconds=2.1).reaches_goals
    assert replace(row, dataset="cifar10", clear=0, median=30.0).reaches_goals
    assert not replace(row, dataset="cifar10", median=29.9).reaches_goals


def test_every_data_set_is_measured() -> None:
    found = list(inversion.cells(2, 64))
    assert len(found) == len(set(found)) == 2 * len(inversion.DATASETS)
