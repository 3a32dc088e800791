"""The page of names is true and complete: every name in it exists, and every setting is in it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import gradpeel as gp
from gradpeel import designs
from gradpeel.cli import main
from gradpeel.datasets import draw_batch, load
from gradpeel.networks import mlp
from gradpeel.sweeps import Cell, Plan

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vocabulary.md"
HOLDERS: dict[str, Any] = {
    "Audit": gp.Audit,
    "Client": gp.Client,
    "Aggregation": gp.Aggregation,
    "Attacker": gp.Attacker,
    "Target": gp.Target,
    "TrapWeights": designs.TrapWeights,
    "SolitonFree": designs.SolitonFree,
    "SolitonData": designs.SolitonData,
    "Cell": Cell,
    "load": load,
    "draw_batch": draw_batch,
    "mlp": mlp,
    "audit": gp.audit,
    "audit_checkpoints": gp.audit_checkpoints,
    "audit_many": gp.audit_many,
}
OUTPUT = {
    "--out",
    "--samples",
    "--no-samples",
    "--json",
    "--quiet",
    "--compare",
    "--what-stops",
    "--no-compare",
    "--open",
}
"""How results are shown is no setting of an audit."""


def _rows() -> list[tuple[list[str], list[str], list[str]]]:
    """The quoted names of each row: in Python, on the command line and in a plan."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    rows = [row for row in cells if row[0].strip() not in {"setting", "---"}]
    assert all(len(row) == 4 for row in rows)
    named = [[re.findall(r"`([^`]+)`", cell) for cell in row[1:]] for row in rows]
    return [(python, option, key) for python, option, key in named]


ROWS = _rows()


def _options(name: str) -> set[str]:
    """The long options of a command."""
    command: Any = get_command(main)
    given = [(*one.opts, *one.secondary_opts) for one in command.commands[name].params]
    return {word for words in given for word in words if word.startswith("--")}


def test_every_python_name_exists() -> None:
    for name in [name for python, _, _ in ROWS for name in python]:
        holder, _, attribute = re.fullmatch(r"(\w+)(\.|\()(\w+)\)?", name).groups()  # type: ignore[union-attr]
        held = HOLDERS[holder]
        if name.endswith(")"):
            assert attribute in inspect.signature(held).parameters, name
        else:
            known = {field.name for field in fields(held)}
            assert attribute in known or hasattr(held, attribute), name


@pytest.mark.parametrize("holder", [gp.Client, gp.Attacker])
def test_every_setting_of_a_round_is_on_the_page(holder: Any) -> None:
    listed = {name for python, _, _ in ROWS for name in python}
    assert {f"{holder.__name__}.{field.name}" for field in fields(holder)} <= listed


def test_the_options_are_those_of_the_command() -> None:
    listed = [option for _, options, _ in ROWS for option in options]
    assert len(set(listed)) == len(listed)
    assert set(listed) == _options("audit") - OUTPUT - {"--help"}


def test_the_keys_are_those_of_a_plan() -> None:
    listed = [key for _, _, keys in ROWS for key in keys]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {field.name for field in fields(Plan)} - {"source"}


def test_one_word_is_one_word() -> None:
    for python, options, keys in ROWS:
        words = {re.split(r"[.(]", name.rstrip(")"))[1] for name in python}
        if not words or words & {"name_or_path", "loss"}:
            continue
        (word,) = words
        assert options[0] == f"--{word.replace('_', '-')}"
        assert all(key in {word, f"{word}s"} for key in keys)


def test_peel_has_the_names_of_audit() -> None:
    own = {"--model", "--samples", "--shape", "--json", "--help"}
    files = {"--before", "--after"}
    assert _options("peel") - own - files <= _options("audit")
