"""Pages and terminal use everyday words: phrases that once confused readers do not come back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from rich.console import RenderableType

from gradpeel import Audit, Report
from gradpeel.reporting import peel_summary, summary

LISTED = tomllib.loads(
    (Path(__file__).parents[2] / "language" / "phrases.toml").read_text(encoding="utf-8")
)
OWN = ("rebuilt", "fell", "gone", "single look", "densest", "taken for")
"""What a page must not say besides: a sample is recovered, or it is not."""
PHRASES = (
    *(rf"\b{word}\b" for word in OWN),
    *(phrase for group in ("translated", "per") for phrase in LISTED[group]),
)
SCRIPTS = ("cascade.js", "chain.js", "mosaic.js", "samples.js", "downloads.js", "start.js")


def found(text: str) -> list[str]:
    return [phrase for phrase in PHRASES if re.search(phrase, text, re.IGNORECASE)]


@pytest.mark.parametrize("kind", ["whole", "part", "nothing", "rows", "records", "without"])
def test_pages(kind: str, pages: dict[str, Report]) -> None:
    page = pages[kind].html
    body = page[page.index("</style>") : page.index('<script type="app')]
    assert found(re.sub("<[^>]*>", " ", body)) == []


def test_scripts() -> None:
    folder = resources.files("gradpeel.reporting.page") / "assets"
    for name in SCRIPTS:
        texts = re.findall(r"[`\"]([^`\"]*)[`\"]", (folder / name).read_text(encoding="utf-8"))
        # A name of a colour is no label.
        assert found(" ".join(text for text in texts if text != "gone")) == []


def test_terminal(
    whole: Audit,
    part: Audit,
    nothing: Audit,
    by_rows: Audit,
    printed: Callable[[RenderableType], str],
) -> None:
    for audit in (whole, part, nothing, by_rows):
        assert found(printed(summary(audit, data="digits"))) == []
        assert found(printed(peel_summary(audit.recovery, classes=10))) == []
