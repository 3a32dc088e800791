"""The benchmark of the check, on one cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import checking
from gradpeel.datasets import load


@pytest.mark.slow
def test_a_cell_is_predicted_decoded_and_timed(tmp_path: Path) -> None:
    data = load("digits")
    x, y = (data.x_train[:64] * 255).astype(np.uint8), data.y_train[:64]
    np.savez(tmp_path / "digits.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    cell = checking.Cell("digits", "soliton-data", "mirrored", 32)
    row = checking.measure(cell, tmp_path)
    assert row.cell == cell
    assert row.predicted == row.certified > 0
    assert (row.other_records, row.other_rounds) == (0, 0)
    assert 0 < row.check_ms < 1000
    wrong = replace(row, other_records=3)
    (line,) = checking.lines([row, wrong])
    assert line[:4] == ("soliton-data", "mirrored", "2", "64")
    assert line[-3:-1] == ("3", "0")
    assert "3 of them are predicted and not certified" in next(checking.findings([row, wrong]))
