from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from gradpeel.cli import cells_progress
from gradpeel.cli.cells_progress import watch_cells
from gradpeel.sweeps import Progress
from sweep_rows import CELL, failed, measured


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr("gradpeel.cli.cells_progress.time.monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def _run(clock: Callable[[float], None], step: float) -> None:
    with watch_cells() as show:
        show(Progress(None, 10, 0, 100))
        clock(60)  # workers start
        for new in range(1, 4):
            show(Progress(measured(CELL, recovered=5), 10 + new, new, 100))
            clock(step)


def test_lines_tell_rate_and_time_left(
    clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    _run(clock, 0.5)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "100 cells, 10 of them done before"
    assert lines[0].startswith("11/100 mnist Passive B=100 N=1000 seed 0: 5 of 5 reachable; ")
    assert lines[0].endswith("; 1 min 0 s elapsed, 1 h 29 min left")
    assert lines[2].endswith("; 1 min 1 s elapsed, 44 s left")


def test_slow_cells_take_minutes(
    clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    _run(clock, 40)
    assert (
        capsys.readouterr().err.splitlines()[-1].endswith("; 2 min 20 s elapsed, 58 min 0 s left")
    )


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watch_cells(quiet=True) as show:
        show(Progress(None, 0, 0, 1))
        show(Progress(measured(CELL), 1, 1, 1))
    assert capsys.readouterr().err == ""


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()

    def console(*, stderr: bool) -> Console:
        assert stderr
        return Console(file=screen, force_terminal=True, width=80)

    monkeypatch.setattr(cells_progress, "Console", console)
    return screen


def test_a_terminal_shows_the_clock_at_once_and_the_cell_that_runs(screen: io.StringIO) -> None:
    with watch_cells() as show:
        assert re.search(r"0:00:00\W.*reading the plan and the data", screen.getvalue())
        show(Progress(None, 0, 0, 2, CELL))
        show(Progress(measured(CELL), 1, 1, 2, replace(CELL, seed=7)))
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
    assert re.search(r"1/2 0:00:00 0 s left +mnist Passive B=100 N=1000 seed 7", shown)


def test_a_terminal_gets_a_bar_and_the_failures(screen: io.StringIO) -> None:
    odd = replace(CELL, dataset="[/red]\x07")
    with watch_cells() as show:
        show(Progress(None, 0, 0, 2))
        show(Progress(measured(odd), 1, 1, 2))
        show(Progress(failed(odd, 1), 2, 2, 2))
    shown = screen.getvalue()
    assert "2/2" in shown
    assert "ValueError: too bad" in shown
    assert "[/red]" in shown
    assert "\x07" not in shown
