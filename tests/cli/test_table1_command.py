from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gradpeel.cli import main


def _table1(*options: str | Path) -> Result:
    return CliRunner().invoke(main, ["paper", "table1", *map(str, options)])


@pytest.mark.slow
def test_our_rates_stand_beside_the_papers(data_dir: Path, tmp_path: Path) -> None:
    given: list[str | Path] = [
        "--data-dir",
        data_dir,
        "--datasets",
        "mnist, svhn",
        "--batch-sizes",
        "64",
    ]
    result = _table1(*given, "--seeds", "1", "--out", tmp_path / "out", "--quiet")
    assert result.exit_code == 0, result.output
    assert "[a] SVHN here: not the official training split in its order" in result.stdout
    assert "false certificates: 0" in result.stdout
    assert "cells: 14" in result.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"table1.csv", "table1.md", "table1.html", "results.csv", "results.sqlite"} <= names
    # The strongest design recovers every batch of 64, as the paper's does.
    lines = (tmp_path / "out/table1.csv").read_text().splitlines()
    assert sum(",SD-" in line and ",1.000000,1.000000,1.000000," in line for line in lines) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--datasets", "mnist,,svhn"], "datasets='mnist,,svhn': expected names with commas"),
        (["--datasets", "digits"], "datasets='digits': expected one of cifar10"),
        (["--batch-sizes", "64,x"], "batch-sizes='64,x': expected positive integers"),
        (["--data-dir", "nowhere"], "data_dir='nowhere': no such directory"),
    ],
)
def test_bad_options_are_told_in_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    result = _table1(*options, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
