"""Everything that people read, as plain text with a place for each piece."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from gradpeel.cli import main

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/gradpeel"

PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**/*.md",
    "examples/*",
)
GENERATED = {"docs/_build", "docs/tutorials", "docs/reproduction"}
"""Folders whose text a command wrote."""

INTERNAL = {"decoder"}
"""Packages whose docstrings are notes for the people who work on them, not a reference."""

CODE = re.compile(
    r"```.*?```|`[^`]*`|^(?: {4}|\t).*?$|https?://\S+|\]\([^)]*\)|<[^>]*>", re.MULTILINE | re.DOTALL
)


class Prose(NamedTuple):
    """A piece of text, and where it stands."""

    place: str
    text: str


def pages() -> Iterator[Prose]:
    """README, documentation, tutorials; without code."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if any(name.startswith(folder) for folder in GENERATED) or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".py":
                text = "\n".join(comments(text))
            yield Prose(name, without_code(text))


def command_help() -> Iterator[Prose]:
    """What `--help` prints, command by command."""
    command: Any = typer.main.get_command(main)
    yield from _help("gradpeel", command)


def templates() -> Iterator[Prose]:
    """The text of the report pages, without tags and placeholders."""
    for path in sorted(SOURCE.rglob("templates/*.j2")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(
            r"<(style|script)\b.*?</\1>|\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>",
            " ",
            text,
            flags=re.DOTALL,
        )
        yield Prose(str(path.relative_to(ROOT)), text)


def docstrings() -> Iterator[Prose]:
    """Docstrings of public modules, and of what is public in them."""
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE).parts
        if inside[0] in INTERNAL or path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                name = getattr(node, "name", "")
                text = ast.get_docstring(node)
                if text is not None and (not name.startswith("_") or name.startswith("__")):
                    yield Prose(f"{path.relative_to(ROOT)}: {name}", without_examples(text))


def without_code(text: str) -> str:
    """Drop code and addresses; line numbers stay."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)


def without_examples(text: str) -> str:
    """Drop doctests, their output, and what stands in backticks."""
    return re.sub(r"^ *>>>.*?(\n\s*\n|\Z)|`[^`]*`", " ", text, flags=re.MULTILINE | re.DOTALL)


def comments(code: str) -> Iterator[str]:
    """The text of a tutorial: its docstring and the lines behind #."""
    yield ast.get_docstring(ast.parse(code)) or ""
    for line in code.splitlines():
        if line.startswith("# ") and not line.startswith("# %%"):
            yield line.removeprefix("# ")


def _help(name: str, command: Any) -> Iterator[Prose]:
    texts = [command.help, getattr(command, "epilog", None)]
    texts += [getattr(parameter, "help", None) for parameter in command.params]
    yield Prose(name, "\n".join(filter(None, texts)))
    for inner, child in getattr(command, "commands", {}).items():
        yield from _help(f"{name} {inner}", child)
