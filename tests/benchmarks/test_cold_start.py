from __future__ import annotations

import pytest

from benchmarks import cold_start
from benchmarks.cold_start import COMMANDS, Command, measure, table


def test_goals_stand_in_the_table() -> None:
    text = table(2.0, dict.fromkeys(COMMANDS, 1.0))
    assert "| `gradpeel --help` | 1.00 | 0.50 | at most 0.5 |" in text
    assert "| `gradpeel audit --data digits --batch-size 64` | 1.00 | 0.50 | at most 2 |" in text
    assert '| `python -c "import gradpeel"` | 1.00 | 0.50 |  |' in text


def test_the_median_counts_and_the_first_round_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0, 9.0, 1.0, 5.0, 3.0, 4.0, 2.0, 8.0])
    monkeypatch.setattr(cold_start, "_seconds", lambda _: next(times))
    command = Command(("--help",))
    assert measure([command], 3) == (2.0, {command: 5.0})


def test_a_command_that_fails_ends_the_measurement() -> None:
    with pytest.raises(SystemExit, match="failed"):
        cold_start._seconds([cold_start.IMPORT_TORCH[0], "-c", "raise SystemExit(1)"])


def test_seconds_are_those_of_the_process() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    assert cold_start._seconds([cold_start.IMPORT_TORCH[0], "-c", spin]) >= 0.19


def test_a_missed_goal_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cold_start", "--repeat", "1"])
    monkeypatch.setattr(cold_start, "_seconds", lambda _: 1.0)
    with pytest.raises(SystemExit, match=r"^1$"):
        cold_start.main()
    assert "`gradpeel --help`" in capsys.readouterr().out
