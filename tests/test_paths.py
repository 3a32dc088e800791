"""Paths that no file system takes: refused by every function and every option that takes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gradpeel.cli import main
from gradpeel.cli.output import private_directory
from gradpeel.datasets import load
from gradpeel.errors import InputError
from gradpeel.files import Npz, write_files
from gradpeel.reporting.page import Report
from gradpeel.sweeps import LocalEngine, Plan, is_sweep, read_plan, read_results, sweep
from gradpeel.update import Update, load_update, save_update

LONG = "x" * 5000
UPDATE = Update({"0.weight": torch.ones(3, 2)}, 1)
PLAN = 'datasets = ["tiny.npz"]\ndesigns = ["passive"]\nbatch_sizes = [4]\nneurons = [20]\n'


def make_private(path: str) -> None:
    with private_directory(Path(path)):
        pass


def run_sweep(path: str) -> None:
    plan = Plan(datasets=["tiny.npz"], designs=["passive"], batch_sizes=[4], neurons=[20])
    sweep(plan, path, engine=LocalEngine(1))


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "load_update": lambda path: load_update(f"{path}.npz"),
    "save_update": lambda path: save_update(UPDATE, f"{path}.safetensors"),
    "load": lambda path: load(f"{path}.npz"),
    "load from a directory": lambda path: load("mnist", data_dir=path),
    "read_plan": lambda path: read_plan(Path(path)),
    "sweep": run_sweep,
    "is_sweep": lambda path: is_sweep(Path(path)),
    "read_results": lambda path: read_results(Path(path)),
    "Report.read": lambda path: Report.read(Path(path)),
    "Npz": lambda path: Npz(Path(path)),
    "write_files": lambda path: write_files(Path(path), {"a": b""}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).random((24, 6)), np.arange(24) % 3
    np.savez("tiny.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    Path("plan.toml").write_text(PLAN)
    return tmp_path


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("path", [LONG, "a\0b", "\ud800"], ids=["long", "NUL", "surrogate"])
def test_no_function_takes_a_path_that_is_none(
    folder: Path, path: str, call: Callable[[str], object]
) -> None:
    with pytest.raises(InputError):
        call(path)
    assert sorted(entry.name for entry in folder.iterdir()) == ["plan.toml", "tiny.npz"]


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_nor_does_a_directory_of_results(path: str) -> None:
    with pytest.raises(InputError, match="expected text without NUL and surrogates"):
        make_private(path)


OPTIONS = [
    "audit --data PATH",
    "audit --data PATH.npz",
    "audit --data mnist --data-dir PATH",
    "audit --data tiny.npz --batch-size 4 --neurons 20 --out PATH",
    "peel PATH.npz --model model.safetensors",
    "peel PATH --model model.safetensors",
    "peel update.safetensors --model PATH.safetensors",
    "peel update.safetensors --model model.safetensors --samples PATH",
    "report PATH",
    "sweep PATH --out out",
    "sweep plan.toml --workers 1 --out PATH",
    "paper table1 --datasets mnist --data-dir PATH",
    "paper figures --data-dir PATH --out out",
    "paper figures --out PATH",
    "demo --out PATH",
]


@pytest.mark.parametrize("command", OPTIONS)
@pytest.mark.parametrize("path", [LONG, "/".join(["y" * 200] * 30)], ids=["long", "deep"])
def test_a_path_that_is_too_long_is_told_in_a_short_line(
    folder: Path, command: str, path: str
) -> None:
    finished = CliRunner().invoke(main, [part.replace("PATH", path) for part in command.split()])
    assert finished.exit_code == 2
    assert finished.stderr.startswith("error: ")
    assert finished.stderr.count("\n") == 1
    assert len(finished.stderr) < 600
    assert sorted(entry.name for entry in folder.iterdir()) == ["plan.toml", "tiny.npz"]
