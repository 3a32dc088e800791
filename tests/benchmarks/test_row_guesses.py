"""The benchmark of how wrong the guesses of the row cascade may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.row_guesses import WRONG, Cell, Row, measure, survives, tabulate


@pytest.mark.parametrize("by", ["next layer", "silence"])
@pytest.mark.slow
def test_better_guesses_find_more_rows(tmp_path: Path, by: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8), rng.integers(0, 10, 40)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    cell = Cell(dataset="mnist", by=by, batch_size=16, neurons=200)
    row = measure(cell, tmp_path)
    assert row.cell == cell
    assert len(row.shares) == len(WRONG)
    assert row.shares[0] == 1.0
    assert row.shares[0] > row.shares[-1]
    # A mixture of fewer samples is nearer to one of them, and both are nearer than a coin.
    assert 0.0 < row.seeds_half_known < row.seeds < 0.5


def test_the_largest_share_that_half_of_the_rows_survive() -> None:
    assert survives([1.0, 0.9, 0.5, 0.49] + [0.0] * 5) == "15%"
    assert survives([0.4] * len(WRONG)) == "-"


def test_the_table_has_means_over_seeds() -> None:
    values = " ".join(["1.0"] * 4 + ["0.0"] * 5), " ".join(["1.0"] * 2 + ["0.0"] * 7)
    rows = [
        Row(
            dataset="mnist",
            by="silence",
            batch_size=8,
            seed=seed,
            found=found,
            seeds=0.2,
            seeds_half_known=0.1,
        )
        for seed, found in enumerate(values)
    ]
    (line,) = tabulate(rows)
    assert line[4:8] == ["1.00", "1.00", "0.50", "0.50"]
    assert line[-3:] == ["20%", "20%", "10%"]
