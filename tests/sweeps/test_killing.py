"""A sweep is killed, or told to stop, at any moment: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from gradpeel.sweeps import Cell, Finished, read_plan, sweep
from gradpeel.sweeps.data import DataSource
from gradpeel.sweeps.engines import attempt

pytestmark = pytest.mark.slow

PLAN = """\
datasets = ["digits", "breast_cancer"]
designs = ["passive", "soliton-data"]
weights = ["independent"]
batch_sizes = [16, 48]
neurons = [400]
seeds = 2
"""
CELLS = 16


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """Processes started here hear Ctrl-C, also where the shell runs the tests in its background.

    Such a shell has its processes ignore SIGINT, and they hand that on to those they start; a
    signal with a handler goes back to its default there.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InThisProcess:
    """Runs cells where it stands: nobody is started, nobody can be killed."""

    name: ClassVar[str] = "here"

    def run(self, cells: Sequence[Cell], data: DataSource) -> Generator[Finished, None, None]:
        for cell in cells:
            yield attempt(cell, data.load(cell.dataset))


def _start(plan: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gradpeel", "sweep", str(plan), "--out", str(out)]
    # A session of its own: whatever is left of it can be found by its number.
    with log.open("ab") as file:
        return subprocess.Popen(
            [*command, "--workers", "2"], stdout=file, stderr=file, start_new_session=True
        )


def _is_alone_gone(session: int) -> bool:
    """Has every process of the session ended?"""
    for _ in range(200):
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def _rows(out: Path) -> int:
    if not (out / "results.sqlite").exists():
        return 0
    with sqlite3.connect(out / "results.sqlite") as store:
        tables = store.execute("SELECT name FROM sqlite_master WHERE name = 'cells'").fetchall()
        count = store.execute("SELECT count(*) FROM cells").fetchone()[0] if tables else 0
    store.close()
    return int(count)


@pytest.mark.parametrize("moment", [0.0, 1.0])
def test_ctrl_c_while_workers_start(moment: float, plan: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    process = _start(plan, out, log)
    while not (out / "results.sqlite").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    assert log.read_text().splitlines()[-1].startswith("interrupted")
    assert _is_alone_gone(process.pid)


def test_stopped_and_killed_it_ends_with_the_same_rows(plan: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    process = _start(plan, out, log)
    while _rows(out) < 3 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    assert process.wait(60) == 130, log.read_text()
    assert log.read_text().splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in log.read_text()
    assert _is_alone_gone(process.pid)
    held = _rows(out)
    exported = (out / "results.csv").read_text().count("\n") - 1
    assert 3 <= exported == held < CELLS

    process = _start(plan, out, log)
    while _rows(out) <= held and process.poll() is None:
        time.sleep(0.02)
    process.kill()  # whatever it is doing
    process.wait()
    assert _is_alone_gone(process.pid)
    assert held < _rows(out) < CELLS  # nothing is lost, and something is left to do

    assert _start(plan, out, log).wait(300) == 0, log.read_text()
    assert _rows(out) == CELLS
    whole = tmp_path / "whole"
    sweep(read_plan(plan), whole, engine=InThisProcess())
    assert (out / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
