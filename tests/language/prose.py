"""Everything that people read, as plain text with a place for each piece."""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
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
    "CITATION.cff",
    "action.yml",
    ".github/**/*.yml",
    "docs/**/*.md",
    "examples/*",
    "examples/**/*.py",
)
GENERATED = ("docs/_build/", "docs/tutorials/", "docs/reproduction/")
"""Folders whose text a command wrote."""

CODE = re.compile(
    r"```.*?```|`[^`]*`|^(?: {4}|\t).*?$|https?://\S+|\]\([^)]*\)|<[^>]*>", re.MULTILINE | re.DOTALL
)


YAML_TEXT = re.compile(r"^\s*#\s?(.*)|^[\s-]*(?:name|description): (.*)|\s#\s(.*)", re.MULTILINE)
"""Comments, names and descriptions in a workflow or an action."""


class Prose(NamedTuple):
    """A piece of text, and where it stands."""

    place: str
    text: str


def pages() -> Iterator[Prose]:
    """README, documentation, tutorials, the action and the workflows; without code."""
    paths = dict.fromkeys(path for each in PAGES for path in sorted(ROOT.glob(each)))
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(GENERATED) or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text = "\n".join(comments(text))
        elif path.suffix == ".yml":
            text = "\n".join(yaml_text(text))
        yield Prose(name, without_code(text))


def command_help() -> Iterator[Prose]:
    """What `--help` prints, command by command."""
    command: Any = typer.main.get_command(main)
    yield from _help("gradpeel", command)


def benchmarks() -> Iterator[Prose]:
    """What the benchmarks say of themselves: their docstrings, and the help of their options."""
    for path in sorted(ROOT.glob("benchmarks/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if isinstance(node.value.value, str):
                    text = without_examples(inspect.cleandoc(node.value.value))
                    yield Prose(f"{name}: docstring in line {node.lineno}", without_code(text))
            elif isinstance(node, ast.keyword) and node.arg in {"help", "description"}:
                yield Prose(f"{name}: help in line {node.value.lineno}", _written(node.value))


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


def sources() -> Iterator[Path]:
    """Modules of the package."""
    yield from sorted(SOURCE.rglob("*.py"))


def docstrings() -> Iterator[Prose]:
    """Docstrings of modules, classes, functions and attributes, private ones included."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = node.value.value
                if isinstance(text, str):
                    place = f"{path.relative_to(ROOT)}: docstring in line {node.lineno}"
                    yield Prose(place, without_examples(inspect.cleandoc(text)))


def code_comments() -> Iterator[Prose]:
    """Comments of the package, a block of lines at a time; marks for tools are none."""
    for path in sources():
        with path.open("rb") as file:
            tokens = [t for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT]
        blocks: list[list[tokenize.TokenInfo]] = []
        for token in tokens:
            if blocks and token.start[0] == blocks[-1][-1].start[0] + 1:
                blocks[-1].append(token)
            else:
                blocks.append([token])
        for block in blocks:
            lines = [re.sub(r"^#\s?|# noqa\S*.*? --|# noqa.*", "", t.string) for t in block]
            place = f"{path.relative_to(ROOT)}: comment in line {block[0].start[0]}"
            yield Prose(place, re.sub(r"`[^`]*`", " ", "\n".join(lines)))


def messages() -> Iterator[Prose]:
    """Strings of the package that hold more than a word: errors, reports, progress, help."""
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # Docstrings have a check of their own, and pieces of an f-string are read with it.
        others = {
            id(piece)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr | ast.JoinedStr)
            for piece in ast.iter_child_nodes(node)
            if isinstance(piece, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(_literal(value) for value in node.values)
            elif isinstance(node, ast.Constant) and id(node) not in others:
                text = node.value if isinstance(node.value, str) else ""
            else:
                continue
            if " " in text.strip():
                place = f"{path.relative_to(ROOT)}: string in line {node.lineno}"
                yield Prose(place, re.sub(r"`[^`]*`", " ", text))


def without_code(text: str) -> str:
    """Drop code and addresses; line numbers stay."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)


def without_examples(text: str) -> str:
    """Drop doctests, their output, and what stands in backticks."""
    return re.sub(r"^ *>>>.*?(\n\s*\n|\Z)|`[^`]*`", " ", text, flags=re.MULTILINE | re.DOTALL)


def comments(code: str) -> Iterator[str]:
    """The text of a tutorial or an example app: its docstrings and the lines behind #."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    for line in code.splitlines():
        text = line.strip()
        if text.startswith("# ") and not text.startswith("# %%"):
            yield text.removeprefix("# ")


def yaml_text(text: str) -> Iterator[str]:
    """What people read in a workflow or an action: its comments, names and descriptions."""
    for match in YAML_TEXT.finditer(text):
        yield next(group for group in match.groups() if group is not None)


def _literal(value: ast.expr) -> str:
    """What is written out in a piece of an f-string; a value that is put in becomes an x."""
    return str(value.value) if isinstance(value, ast.Constant) else "x"


def _written(value: ast.expr) -> str:
    """The text of an argument, if it is written out where it is given."""
    pieces = value.values if isinstance(value, ast.JoinedStr) else [value]
    return "".join(_literal(piece) for piece in pieces)


def _help(name: str, command: Any) -> Iterator[Prose]:
    texts = [command.help, getattr(command, "epilog", None)]
    texts += [getattr(parameter, "help", None) for parameter in command.params]
    yield Prose(name, "\n".join(filter(None, texts)))
    for inner, child in getattr(command, "commands", {}).items():
        yield from _help(f"{name} {inner}", child)
