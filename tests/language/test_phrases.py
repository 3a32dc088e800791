"""No phrase of `phrases.toml` is in anything that people read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from language import prose

LIST = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))
PHRASES = {
    re.compile(pattern, re.IGNORECASE | re.MULTILINE): better
    for group in LIST.values()
    for pattern, better in group.items()
}
SOURCES = (
    prose.pages,
    prose.command_help,
    prose.benchmarks,
    prose.templates,
    prose.docstrings,
    prose.code_comments,
    prose.messages,
)


def _faults(pieces: Iterable[prose.Prose]) -> list[str]:
    return [
        f"{place}, line {text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {better}"
        for place, text in pieces
        for phrase, better in PHRASES.items()
        for match in phrase.finditer(text)
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.__name__))
def test_everything_that_people_read_is_plain_english(
    source: Callable[[], Iterable[prose.Prose]],
) -> None:
    pieces = list(source())
    assert pieces
    assert not _faults(pieces), "\n".join(["", *_faults(pieces)])


@pytest.mark.parametrize(
    "text",
    [
        "an earlier run in it is gone on with",
        "Held against the truth",
        "the samples that fell first",
        "What was not shown",
        "How sure it is",
        "## The larger the batch",
        "## Together",
        "make the page anew",
        "Of a million candidates a dtype none was certified",
        "the noise is told",
        "a row a cell",
        "turned away at sight",
        "22 by a single look",
        "one label a sample",
        "tested 24865 candidates",
    ],
)
def test_the_phrases_of_the_first_review_are_found(text: str) -> None:
    assert _faults([prose.Prose("here", f"First line.\n{text}\n")])[0].startswith("here, line 2: ")


def test_code_is_not_prose() -> None:
    text = (
        "Write `a row a cell`.\n\n```sh\nturned away\n```\n\n    held against\n\nSee [it](anew.md)."
    )
    assert not _faults([prose.Prose("here", prose.without_code(text))])
    assert prose.without_code(text).count("\n") == text.count("\n")


def test_a_docstring_is_read_without_its_example() -> None:
    text = "One row per cell.\n\nExample:\n    >>> print('anew')\n    anew\n\nIt goes on with this."
    (fault,) = _faults([prose.Prose("here", prose.without_examples(text))])
    assert "goes on with" in fault


def test_the_text_of_an_action_is_read_without_its_commands() -> None:
    text = """\
name: One name
inputs:
  data:
    description: What it takes
runs:
  # Why it is done.
  - name: Another name
    run: held against  # and a reason
"""
    found = "\n".join(prose.yaml_text(text))
    assert found == "One name\nWhat it takes\nWhy it is done.\nAnother name\nand a reason"


def test_every_source_holds_what_it_should() -> None:
    pieces = [piece for source in SOURCES for piece in source()]
    places = {piece.place for piece in pieces}
    assert {"README.md", "docs/glossary.md", "examples/audit_my_model.py"} <= places
    assert {"docs/reproduction.md", "action.yml", "CITATION.cff"} <= places
    assert {".github/workflows/ci.yml", "examples/flower/client_app.py"} <= places
    assert not any(place.startswith("docs/reproduction/") for place in places)
    assert "benchmarks/tuned.py: docstring in line 1" in places
    assert {"gradpeel", "gradpeel audit", "gradpeel paper table1"} <= places
    assert "src/gradpeel/audit.py: docstring in line 1" in places
    assert any(place.startswith("src/gradpeel/decoder/cascade.py: comment") for place in places)
    assert any(place.endswith("table1.html.j2") for place in places)
    texts = {piece.text for piece in pieces}
    assert "y: holds values outside [0, 1]: expected one probability per output" in texts
    (audit,) = (piece.text for piece in pieces if piece.place == "gradpeel audit")
    assert "Samples in the client's batch" in audit
