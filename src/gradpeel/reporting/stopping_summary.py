"""What a person reads after `gradpeel audit --what-stops`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.reporting.layout import headed
from gradpeel.stopping import Stopping

__all__ = ["stopping_summary"]


def stopping_summary(stopping: Stopping) -> RenderableType:
    """A line for each defence that was tried: its setting, the result and the cost.

    Args:
        stopping: what was tried.
    """
    table = Table(box=None, show_edge=False, pad_edge=False)
    for title in ("defence", "result", "cost"):
        table.add_column(title, header_style="dim")
    for trial in stopping:
        defence = Text.assemble(trial.defence, (f" ({trial.setting})", "dim"))
        result = Text("stopped", "bold") if trial.stops else Text(trial.verdict)
        table.add_row(defence, result, Text(trial.cost))
    return headed("What would stop this?", Group(stopping.verdict, table))
