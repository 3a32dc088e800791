from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from gradpeel.cli import progress
from gradpeel.decoder import Round, Stage
from gradpeel.decoder.recovery import RowCount


def round_of(number: int, certified: int) -> Round:
    nothing = torch.zeros(certified, dtype=torch.int64)
    return Round(
        number=number,
        stage=Stage.STRICT,
        looked_at=9,
        distinct=9,
        sources=nothing,
        labels=nothing,
        fires=torch.zeros(certified, 4) > 0,
        quiet=0,
        left=1.0,
    )


def watched(
    monkeypatch: pytest.MonkeyPatch,
    *,
    of: int | None = 8,
    terminal: bool,
    quiet: bool = False,
    rows: bool = False,
    inputs: bool = False,
) -> str:
    """What appears on a console while two rounds certify 3 and 2 samples, and rows are found."""
    screen = io.StringIO()

    def console(*, stderr: bool) -> Console:
        assert stderr
        return Console(file=screen, force_terminal=terminal, width=80)

    monkeypatch.setattr(progress, "Console", console)
    with progress.watch(of, quiet=quiet) as watcher:
        for round_ in (round_of(1, 3), round_of(2, 2)):
            watcher.on_round(round_)
        if rows:
            watcher.on_rows(RowCount(2, 3))
        if inputs:
            watcher.on_inputs(4, 8)
        # The display is refreshed by a clock; the last state is drawn when it stops.
    return screen.getvalue()


def test_a_terminal_shows_what_is_recovered_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "round 2, 5 of 8 samples" in watched(monkeypatch, terminal=True)


def test_a_terminal_shows_how_many_inputs_are_reconstructed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = watched(monkeypatch, terminal=True, inputs=True)
    assert "reconstructing: 4 of 8 inputs" in shown
    assert not watched(monkeypatch, terminal=False, inputs=True)


def test_a_batch_of_unknown_size_has_no_total(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "round 2, 5 samples" in watched(monkeypatch, of=None, terminal=True)


def test_the_row_cascade_shows_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "row cascade: 2 of 3 rows" in watched(monkeypatch, terminal=True, rows=True)


def test_anything_else_stays_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, terminal=False, rows=True) == ""
    assert watched(monkeypatch, terminal=True, quiet=True, rows=True) == ""
