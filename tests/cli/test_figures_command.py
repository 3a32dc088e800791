from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import gradpeel.datasets
from gradpeel.cli.figures_command import figures_command
from gradpeel.cli.one_line import OneLineErrors
from gradpeel.datasets import Dataset, load
from gradpeel.paper import figures

app = typer.Typer(cls=OneLineErrors)
app.command("figures")(figures_command)


@app.callback()
def _root() -> None:
    """So that the command keeps its name."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every data set is the digits under another name; lists what was asked for."""
    calls: list[tuple[str, Any]] = []
    digits = load("digits")

    def load_stub(name: str, *, data_dir: Path | None = None) -> Dataset:
        calls.append((name, data_dir))
        return dataclasses.replace(digits, name=name, classes=11, class_names=None)

    monkeypatch.setattr(gradpeel.datasets, "load", load_stub)
    return calls


@pytest.mark.slow
def test_figures_are_written_and_listed(tmp_path: Path, asked: list[tuple[str, Any]]) -> None:
    out = tmp_path / "figures"
    options = ["--out", str(out), "--data-dir", str(tmp_path), "--only", "means", "--seed", "3"]
    finished = CliRunner().invoke(app, ["figures", *options])
    assert (finished.exit_code, finished.stderr) == (0, "")
    names = ["means.png", "means.svg", "means.pdf", "captions.json"]
    progress, said = finished.stdout.splitlines()
    assert progress.startswith("means: ")
    assert said == f"4 files in {out}"
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert asked == [("cifar10", tmp_path)]
    told = (out / "captions.json").read_text(encoding="utf-8")
    assert "CIFAR-10: 11 classes instead of 10." in told
    assert '"seed": 3' in told


def test_names_are_split_and_seed_and_notes_are_passed_on(
    tmp_path: Path, asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: dict[str, Any] = {}

    def draw_figures(load: Any, out: Path, **settings: Any) -> list[Path]:
        passed.update(settings)
        load("mnist")
        return [out / "board.png"]

    monkeypatch.setattr(figures, "draw_figures", draw_figures)
    finished = CliRunner().invoke(
        app, ["figures", "--out", str(tmp_path / "a"), "--only", "board, seeds", "--no-titles"]
    )
    assert finished.exit_code == 0
    assert passed["only"] == ("board", "seeds")
    assert passed["seed"] == 0
    assert passed["titles"] is False
    assert passed["notes"] == {"mnist": "11 classes instead of 10"}
    assert asked == [("mnist", None)]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--only", "bored"], "error: only='bored': expected some of teaser, peeling_graph,"),
        (
            ["--data-dir", "/no/such"],
            "error: figure teaser: data_dir='/no/such': no such directory",
        ),
    ],
)
def test_mistakes_are_told_in_one_line_and_leave_nothing(
    options: list[str], line: str, tmp_path: Path
) -> None:
    finished = CliRunner().invoke(app, ["figures", "--out", str(tmp_path / "out"), *options])
    assert finished.exit_code == 2
    assert finished.stderr.startswith(line)
    assert finished.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    finished = CliRunner().invoke(app, ["figures", "--out", str(tmp_path)])
    assert finished.exit_code == 2
    assert finished.stderr.endswith("holds files: expected a new or an empty directory\n")
