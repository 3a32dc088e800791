"""The benchmark of the row cascade."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import rows, rows_map
from benchmarks.row_suites import SUITES, Cell
from benchmarks.rows import Row, findings, measure, summarise, tabulate, visible
from gradpeel.datasets.standard import STANDARD
from support import default_model


def make_row(**values: int) -> Row:
    row = Row(
        dataset="mnist",
        scaling="unit",
        start="torch",
        batch_size=10,
        bound=2,
        visible=9,
        readable=9,
        recovered=8,
        by_rows=6,
        false=0,
        complete=0,
        seconds=1.0,
    )
    return replace(row, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factor", "dtype", "expected"),
    [
        (1.0, torch.float32, 30),
        (60.0, torch.float64, 30),  # 1 - p = 4e-10
        (60.0, torch.float32, 29),
        (100.0, torch.float64, 29),  # 1 - p = 2e-16
    ],
)
def test_a_certain_prediction_is_not_visible(
    factor: float, dtype: torch.dtype, expected: int
) -> None:
    model = default_model(60, 250, 6, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 60, generator=generator, dtype=torch.float64)
    y = torch.randint(6, (30,), generator=generator)
    with torch.no_grad():
        y[0] = model(x[:1]).argmax()
    x[0] *= factor
    assert visible(model.to(dtype), x.to(dtype), y) == expected


def test_one_audit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8), rng.integers(0, 10, 40)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    cell = Cell(dataset="mnist", scaling="standardised", start="torch", batch_size=16, neurons=200)
    row = measure(cell, tmp_path)
    assert row.cell == cell
    assert (row.bound, row.visible, row.readable, row.recovered, row.by_rows) == (0, 16, 16, 16, 16)
    assert row.false == 0
    assert row.complete


def test_the_suites_are_what_they_say() -> None:
    goals = list(SUITES["goals"](2))
    assert len(goals) == len(STANDARD) * 2 * 2 * 2 * 2 * 2
    assert len(set(goals)) == len(goals)
    assert all(list(suite(1)) for suite in SUITES.values())


def test_the_table_and_what_it_says() -> None:
    lines = list(tabulate([make_row(), make_row(recovered=10, visible=10, readable=10)]))
    assert [line[7:13] for line in lines] == [["2", "0.200", "0.950", "0.950", "0.900", "0.800"]]
    said = list(findings([make_row(), make_row(recovered=1)]))
    assert "below the peeling bound: 1 audits" in said
    assert "not visible: 2 samples" in said
    assert "visible, but not recovered: 9 samples" in said


def test_the_summary_names_the_data_set_with_the_least() -> None:
    worse = make_row(recovered=4)
    (line,) = summarise([make_row(), replace(worse, dataset="svhn"), replace(worse, seed=1)])
    assert line[-6:] == ["0.200", "0.900", "0.900", "0.533", "0.400 SVHN", "1"]
    (line,) = summarise([make_row(recovered=10)])
    assert line[-2] == "1.000"


@pytest.mark.parametrize(("false", "status"), [(0, 0), (1, 1)])
def test_it_fails_if_anything_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, false: int, status: int
) -> None:
    monkeypatch.setattr(rows, "run", lambda *_, **__: [make_row(false=false)])
    monkeypatch.setattr(sys, "argv", ["rows", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        rows.main()
    assert exit_.value.code == status


@pytest.mark.slow
def test_the_map_shows_every_limit() -> None:
    measured = [
        replace(make_row(), **asdict(cell), recovered=cell.batch_size)
        for cell in SUITES["limits"](1)
    ]
    drawn = rows_map.draw(measured)
    assert drawn.startswith(b"\x89PNG")
    # A share that is missing is left out, and a lower one has another colour.
    assert rows_map.draw(measured[1:]) != drawn
    assert rows_map.draw([replace(row, recovered=0) for row in measured]) != drawn
