from __future__ import annotations

import pkgutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import gradpeel
from gradpeel.cli import main


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, argv)


def test_the_console_script_is_this_object() -> None:
    settings = Path(__file__).parents[2] / "pyproject.toml"
    scripts = tomllib.loads(settings.read_text(encoding="utf-8"))["project"]["scripts"]
    assert pkgutil.resolve_name(scripts["gradpeel"]) is main


def test_the_version_is_the_package_s() -> None:
    finished = run("--version")
    assert (finished.exit_code, finished.stdout) == (0, f"gradpeel {gradpeel.__version__}\n")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], ["demo", "audit", "peel", "systems that you own", "simulation"]),
        (
            ["audit", "--help"],
            ["gradpeel audit --data", "--soliton", "--noise", "you own"],
        ),
        (["peel", "--help"], ["gradpeel peel audit/update", "--unknown-tail", "personal data"]),
        (["demo", "--help"], ["--out", "--seed"]),
        (["report", "--help"], ["gradpeel report results", "--no-samples", "--open"]),
    ],
)
def test_help_explains_itself(argv: list[str], words: list[str]) -> None:
    finished = run(*argv)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert all(word in finished.stdout for word in words)


def test_nothing_at_all_shows_the_help() -> None:
    finished = run()
    assert "audit" in finished.output
