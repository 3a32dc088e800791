"""The pieces both summaries are laid out with.

Names and sentences go through `Text`, never through rich's markup, because names come from files.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["all_of", "cautions", "facts", "headed", "panel", "was"]

WIDTH = 88
"""Lines longer than this are hard to read, however wide the terminal is."""


def panel(title: str, parts: Sequence[RenderableType]) -> Panel:
    """Everything in one frame, with an empty line between the parts."""
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Panel(
        Group(*spaced[:-1]),
        title=Text(title),
        title_align="left",
        box=ROUNDED,
        padding=(0, 2),
        width=WIDTH,
    )


def headed(heading: str, body: RenderableType) -> Group:
    """A part with its heading."""
    return Group(Text(heading, style="bold"), body)


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names on the left, sentences on the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for name, sentence in rows:
        table.add_row(Text(name), Text(sentence))
    return table


def cautions(sentences: Sequence[str]) -> Text:
    """What a reader must not miss, a line each."""
    return Text("\n".join(f"Warning: {sentence}" for sentence in sentences), style="bold yellow")


def all_of(batch_size: int, noun: str) -> str:
    """A whole batch as the subject of a sentence."""
    return f"The only {noun}" if batch_size == 1 else f"All {batch_size:,} {noun}s"


def was(number: int) -> str:
    """The verb that goes with so many samples."""
    return "was" if number == 1 else "were"
