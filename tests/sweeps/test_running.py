"""What a sweep keeps, skips and refuses, with an engine that measures nothing."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gradpeel.errors import InputError
from gradpeel.files import write_npz
from gradpeel.sweeps import Cell, Finished, Plan, Progress, sweep
from gradpeel.sweeps.data import DataSource, fingerprint
from sweep_rows import failed, measured

PLAN = Plan(datasets=["digits", "breast_cancer"], designs=["passive"], batch_sizes=[8, 16], seeds=3)


def _as_many_as_the_seed(cell: Cell) -> Finished:
    return measured(cell, cell.seed, recovered=cell.seed, reachable=cell.batch_size)


@dataclass
class FakeEngine:
    """Answers at once, and remembers what it was asked."""

    answer: Callable[[Cell], Finished] = _as_many_as_the_seed
    asked: list[Cell] = field(default_factory=list)
    name: ClassVar[str] = "fake"

    def run(self, cells: Sequence[Cell], _data: DataSource) -> Generator[Finished, None, None]:
        for cell in reversed(cells):  # any order will do
            self.asked.append(cell)
            yield self.answer(cell)


def test_rows_come_in_the_order_of_the_plan(tmp_path: Path) -> None:
    results = sweep(PLAN, tmp_path, engine=FakeEngine())
    assert [row.cell for row in results.rows] == PLAN.cells()
    assert not results.failures
    with (tmp_path / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["seed"] for line in lines] == [str(cell.seed) for cell in PLAN.cells()]
    assert lines[5]["recovery_rate"] == str(2 / 16)
    assert lines[5]["peeling_bound"] == "1.0"
    assert {path.name for path in results.files} == {"results.csv", "timings.csv", "manifest.json"}


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    sweep(PLAN, tmp_path, engine=FakeEngine())
    before = (tmp_path / "results.csv").read_bytes()
    again = FakeEngine()
    assert sweep(PLAN, tmp_path, engine=again).rows
    assert again.asked == []
    assert (tmp_path / "results.csv").read_bytes() == before
    more = FakeEngine()
    wider = replace(PLAN, batch_sizes=[8, 16, 32])
    assert len(sweep(wider, tmp_path, engine=more).rows) == 18
    assert {cell.batch_size for cell in more.asked} == {32}
    # Rows of the wider plan stay in the store, but are none of this one's.
    assert len(sweep(PLAN, tmp_path, engine=FakeEngine()).rows) == 12


def test_a_failed_cell_is_kept_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    bad = PLAN.cells()[4]

    def answer(cell: Cell) -> Finished:
        return failed(cell, cell.seed) if cell == bad else _as_many_as_the_seed(cell)

    results = sweep(PLAN, tmp_path, engine=FakeEngine(answer))
    assert [one.cell for one in results.failures] == [bad]
    assert len(results.rows) == 11
    assert "ValueError: too bad" in (tmp_path / "results.csv").read_text()
    again = FakeEngine()
    assert sweep(PLAN, tmp_path, engine=again).failures
    assert again.asked == []
    assert not sweep(PLAN, tmp_path, engine=again, retry_failed=True).failures
    assert again.asked == [bad]


@pytest.mark.parametrize("stop_after", [0, 1, 5, 11])
def test_an_interrupted_sweep_goes_on(stop_after: int, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    sweep(PLAN, whole, engine=FakeEngine())
    count = 0

    def answer(cell: Cell) -> Finished:
        nonlocal count
        if count == stop_after:
            raise KeyboardInterrupt
        count += 1
        return _as_many_as_the_seed(cell)

    with pytest.raises(KeyboardInterrupt):
        sweep(PLAN, broken, engine=FakeEngine(answer))
    assert (broken / "results.csv").read_text().count("\n") == 1 + stop_after
    assert json.loads((broken / "manifest.json").read_text())["cells"]["measured"] == stop_after
    rest = FakeEngine()
    sweep(PLAN, broken, engine=rest)
    assert len(rest.asked) == 12 - stop_after
    assert (broken / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


def test_progress_counts_what_was_done_before(tmp_path: Path) -> None:
    told: list[Progress] = []
    sweep(replace(PLAN, batch_sizes=[8]), tmp_path, engine=FakeEngine())
    sweep(PLAN, tmp_path, engine=FakeEngine(), on_progress=told.append)
    assert [(one.done, one.new, one.total) for one in told] == [
        (6 + new, new, 12) for new in range(7)
    ]
    assert told[0].finished is None
    assert all(one.finished is not None for one in told[1:])


def test_the_manifest_tells_how_it_came_about(tmp_path: Path) -> None:
    sweep(PLAN, tmp_path, engine=FakeEngine())
    told = json.loads((tmp_path / "manifest.json").read_text())
    assert told["engine"] == "fake"
    assert told["plan"]["batch_sizes"] == [8, 16]
    assert told["plan"]["seeds"] == [0, 1, 2]
    assert told["cells"] == {"planned": 12, "measured": 12, "failed": 0}
    assert told["data"]["digits"]["fingerprint"] == fingerprint(DataSource().load("digits"))
    assert {"python", "torch", "numpy", "scipy"} <= set(told["versions"])
    assert str(Path.home()) not in json.dumps(told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": ["digit"]}, "^datasets='digit': no such file, and none of digits, "),
        ({"datasets": ["missing.npz"]}, "^datasets='missing.npz': no such file, and none of"),
        ({"batch_sizes": [8, 500]}, "^batch_sizes=500: breast_cancer has 400 training samples"),
    ],
    ids=str,
)
def test_a_plan_that_does_not_fit_the_data_fails_before_any_work(
    change: dict[str, list[str]], message: str, tmp_path: Path
) -> None:
    engine, out = FakeEngine(), tmp_path / "out"
    with pytest.raises(InputError, match=message):
        sweep(replace(PLAN, **change), out, engine=engine)  # type: ignore[arg-type]
    assert engine.asked == []
    assert not out.exists()


def test_rows_of_other_data_are_not_mixed(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((20, 4)), np.arange(20) % 2
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    write_npz(tmp_path / "mine.npz", arrays)
    plan = Plan(datasets=["mine.npz"], designs=["passive"], batch_sizes=[8])
    out = tmp_path / "out"
    sweep(plan, out, engine=FakeEngine(), base=tmp_path)
    before = (out / "results.csv").read_bytes()
    write_npz(tmp_path / "mine.npz", {**arrays, "y_train": 1 - y})
    with pytest.raises(InputError, match=r"data mine.npz was .*: use another directory"):
        sweep(plan, out, engine=FakeEngine(), base=tmp_path)
    assert (out / "results.csv").read_bytes() == before


def test_data_that_changes_under_way_is_refused(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((20, 4)), np.arange(20) % 2
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    write_npz(tmp_path / "mine.npz", arrays)
    source = DataSource(base=tmp_path)
    known = replace(source, fingerprints=(("mine.npz", fingerprint(source.load("mine.npz"))),))
    assert len(known.load("mine.npz").y_train) == 20
    write_npz(tmp_path / "mine.npz", {**arrays, "y_train": 1 - y})
    with pytest.raises(InputError, match=r"mine.npz: changed while the sweep ran"):
        known.load("mine.npz")


def test_engines_are_told_what_the_data_is(tmp_path: Path) -> None:
    told: list[DataSource] = []

    class Listening(FakeEngine):
        def run(self, cells: Sequence[Cell], data: DataSource) -> Generator[Finished, None, None]:
            told.append(data)
            yield from super().run(cells, data)

    sweep(PLAN, str(tmp_path), engine=Listening())
    expected = {name: fingerprint(DataSource().load(name)) for name in PLAN.datasets}
    assert dict(told[0].fingerprints) == expected


def test_a_missing_pyarrow_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    engine = FakeEngine()
    with pytest.raises(
        InputError, match=r"results.parquet: expected pyarrow .*gradpeel\[parquet\]"
    ):
        sweep(PLAN, tmp_path, engine=engine, parquet=True)
    assert engine.asked == []
