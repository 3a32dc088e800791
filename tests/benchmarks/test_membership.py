"""The benchmarks of membership and of differences measure what they say they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import differences, membership


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small data set."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(400, 6, 6), dtype=np.uint8)
    y = rng.integers(0, 4, size=400)
    np.savez(
        tmp_path / "tiny.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:]
    )
    return tmp_path


@pytest.mark.parametrize("steps", [1, 20])
def test_members_and_others_are_counted(data: Path, steps: int) -> None:
    cell = membership.Cell(dataset="tiny", neurons=80, batch_size=16, steps=steps)
    row = membership.measure(cell, data)
    assert row.cell == cell
    assert (row.rank, row.samples, row.members_in, row.others_out) == (16, 16, 16, 384)
    assert (row.wrong, row.members_unknown, row.others_unknown) == (0, 0, 0)
    assert "others reported as in: 0" in list(membership.findings([row]))
    assert len(next(membership.tabulate([row]))) == len(membership.TITLES)


@pytest.mark.parametrize("setting", ["one class", "update x 1000", "head x 0.001", "noise 1e-1"])
def test_no_setting_makes_a_verdict_wrong(data: Path, setting: str) -> None:
    cell = membership.Cell(dataset="tiny", neurons=80, batch_size=16, setting=setting)
    row = membership.measure(cell, data)
    assert row.wrong == 0
    assert row.members_in == (0 if "noise" in setting else 16)


def test_a_goal_follows_what_varies(data: Path) -> None:
    row = membership.measure(membership.Cell(dataset="tiny", neurons=20, batch_size=0), data)
    assert row.samples == 16


def test_every_suite_names_settings_that_exist() -> None:
    for cells in membership.SUITES.values():
        found = list(cells(1))
        assert len(found) == len(set(found)) > 50
        assert {cell.setting for cell in found} <= set(membership.SETTINGS)


def test_a_difference_is_compared_with_its_gradient(data: Path) -> None:
    plain = differences.Cell(dataset="tiny", batch_size=4)
    rows = [
        differences.measure(cell, data)
        for cell in (plain, replace(plain, lr=0.1, weight_decay=1e-2, declared=0))
    ]
    assert [row.recovered for row in rows] == [4, 4]
    assert rows[1].found == pytest.approx(1e-2, rel=1e-3)
    (line,) = differences.tabulate(rows)
    assert line == ["tiny", "4", "0.1", "0.01, found: 0.01", "no", "4", "4", "4", "0", "0"]
