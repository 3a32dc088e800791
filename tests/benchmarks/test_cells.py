"""Many cells: what is done is not done again, and a cut line is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
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


@pytest.mark.slow
def test_a_cell_that_cannot_be_measured_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is measured again"):
        run([Cell("a", size) for size in range(50)], never, tmp_path / "rows.csv", Row, workers=1)


SLEEPER = """
import os, sys, time
from dataclasses import dataclass
from pathlib import Path
from benchmarks.cells import run

@dataclass
class Row:
    cell: str

def sleep(file):
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    run([sys.argv[1]], sleep, Path(sys.argv[2]), Row, workers=1)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the state of a process")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script, started = tmp_path / "sleeper.py", tmp_path / "worker"
    script.write_text(SLEEPER, encoding="utf-8")
    command = [sys.executable, str(script), str(started), str(tmp_path / "rows.csv")]
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}) as parent:
        assert eventually(lambda: started.exists() and bool(started.read_text()))
        parent.kill()
    assert eventually(lambda: has_ended(int(started.read_text())))


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until and not holds():
        time.sleep(0.1)
    return holds()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody has waited for."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.slow
def test_a_tally_is_kept_over_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_all(rows: list[Row]) -> str:
        return f"{sum(row.half for row in rows)} in all"

    monkeypatch.setattr("benchmarks.cells.OFTEN", 2)
    out = tmp_path / "rows.csv"
    out.write_text(DONE[:25])
    assert run([row.cell for row in ROWS], halve, out, Row, workers=1, tally=in_all) == ROWS
    assert "2/2 so far: 3.5 in all" in capsys.readouterr().err


def test_columns_of_another_version_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("name,size\na,3\n")
    with pytest.raises(SystemExit, match=r"rows\.csv: has the columns of another version"):
        run([ROWS[0].cell], never, out, Row, workers=1)


def test_table() -> None:
    assert markdown_table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
