"""Many cells: what is done is not done again, and a cut line is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.cells import markdown_table, run


@dataclass(frozen=True)
class Cell:
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    half: float

    @property
    def cell(self) -> Cell:
        return Cell(self.name, self.size)


ROWS = [Row(name="a", size=3, half=1.5), Row(name="b, c", size=4, half=2.0)]
DONE = 'name,size,half\na,3,1.5\n"b, c",4,2.0\n'


def halve(cell: Cell) -> Row:
    return Row(name=cell.name, size=cell.size, half=cell.size / 2)


def never(cell: Cell) -> Row:
    raise AssertionError(f"{cell} is measured again")


def test_what_is_done_is_read(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text(DONE)
    assert run([row.cell for row in ROWS], never, out, Row, workers=1) == ROWS
    backwards = [row.cell for row in reversed(ROWS)]
    assert run([*backwards, *backwards], never, out, Row, workers=1) == ROWS[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [5, 25])
def test_goes_on_wherever_it_was_killed(tmp_path: Path, kept: int) -> None:
    out = tmp_path / "rows.csv"
    out.write_text(DONE[:kept])
    assert run([row.cell for row in ROWS], halve, out, Row, workers=1) == ROWS
    assert out.read_text() == DONE


def test_columns_of_another_version_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("name,size\na,3\n")
    with pytest.raises(SystemExit, match=r"rows\.csv: has the columns of another version"):
        run([ROWS[0].cell], never, out, Row, workers=1)


def test_table() -> None:
    assert markdown_table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
