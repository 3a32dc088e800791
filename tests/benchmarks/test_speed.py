"""What the speed benchmark measures, on images so small that it takes no time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import speed
from benchmarks.reference import reference_peel
from benchmarks.speed import CASES, GOALS, SIDES, Case, Row, measure
from support import make_round

SMALL = Case(192, 60, 12)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    y = rng.integers(0, 4, 40)
    y[:4] = range(4)
    for name in ("cifar10", "imagenet"):
        np.savez(
            tmp_path / f"{name}.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:]
        )
    return tmp_path


@pytest.mark.slow
def test_one_case(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(SMALL, dtype="float32", tail="9")
    monkeypatch.setattr(speed, "WITH_REFERENCE", {case})
    row = measure(case, images, repeat=2, reference=60.0)
    assert row.cell == case
    assert 0 < row.recovered <= row.reachable <= 12
    assert row.rounds > 0
    for name in ("peel", "floor", "floor64", "single_pass", "reference", "design", "grid_peel"):
        assert getattr(row, name) >= 0
    assert row.update_memory * 2**20 >= 60 * 192 * 4
    assert str(case) in str(row)


def test_images_are_resized(images: Path) -> None:
    model, update, grid, _ = speed._round(Case(768, 30, 5), images)
    assert update.gradients["1.weight"].shape == (30, 768)
    assert grid.shape == (30, 5)
    assert model(torch.rand(2, 16, 16, 3).double()).shape == (2, 4)
    for features, side in SIDES.items():
        assert features == 3 * side * side


def a_row(reference: float = 10.0) -> Row:
    return Row(
        features=3072,
        neurons=1000,
        batch_size=512,
        recovered=400,
        reachable=410,
        rounds=16,
        peel=0.5,
        floor=0.1,
        floor64=0.25,
        single_pass=0.3,
        reference=reference,
        design=0.1,
        grid_peel=0.001,
        update_memory=100.0,
        extra_memory=50.0,
    )


def test_ratios() -> None:
    row = a_row()
    assert row.ratio == 2.0
    assert row.memory_ratio == 1.5
    assert row.speedup == 20.0
    assert a_row(reference=0.0).speedup is None
    table = command._table([row, a_row(reference=-30.0), a_row(reference=0.0)])
    assert "| 2.00 | 1.20 | 20 | 1.50 |" in table
    assert "| > 60 |" in table


def test_more_memory_shows() -> None:
    def work() -> object:
        return torch.ones(2**23).double().sum()

    _, extra = speed._peak(work)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux tells")
    # Some of it may come from what the process holds already.
    assert 4 * 2**23 <= extra <= 32 * 2**23


def test_the_paper_s_loop_is_given_up() -> None:
    round_ = make_round(40, 120, 8, 5)
    assert reference_peel(round_.model, round_.update).ended
    given_up = reference_peel(round_.model, round_.update, give_up_after=0.0)
    assert not given_up.ended
    assert not len(given_up.samples)


@pytest.mark.slow
def test_the_command(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "CASES", (SMALL,))
    monkeypatch.setattr(command, "BY_BATCH", (SMALL,))
    monkeypatch.setattr(command, "BY_NEURONS", (SMALL,))
    monkeypatch.setattr(command, "BY_FEATURES", (SMALL,))
    out, plot, table = (tmp_path / name for name in ("speed.csv", "speed.png", "speed.md"))
    options = ["--data-dir", images, "--out", out, "--plot", plot, "--markdown", table]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--repeat", "1", *map(str, options)])
    command.main()
    printed = capsys.readouterr().out
    assert "| 192 | 60 | 12 | - | float64 |" in printed
    assert "one thread" in printed
    title, lines = table.read_text().split("\n\n", 1)
    assert title == "# Speed table"
    assert lines in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(out.read_text().splitlines()) == 2


def test_every_goal_is_measured() -> None:
    assert set(GOALS) <= set(CASES)
    assert len(set(CASES)) == len(CASES)
