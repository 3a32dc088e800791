"""What a person reads after `gradpeel audit`.

First the verdict and who can do this, then how it compares and how far to trust it, last what it
does not show: a sample that one attack did not rebuild from one gradient is not thereby safe.

Example:
    >>> import numpy as np
    >>> from rich.console import Console
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> model = mlp(30, 2, (200,), rng=np.random.default_rng(0))
    >>> Console(width=80).print(summary(audit(model, batch.x, batch.y), data="breast_cancer"))
    ╭─ gradpeel audit: breast_cancer ──────...
    │  All 4 samples were rebuilt exactly, with labels, from one gradient. ...
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.audit import Audit
from gradpeel.reporting.bars import round_bars
from gradpeel.reporting.layout import cautions, facts, headed, panel
from gradpeel.reporting.telling import comparison, limits, missing, scene, trust, verdict
from gradpeel.reporting.words import percent, printable

__all__ = ["summary"]


def summary(audit: Audit, *, data: str) -> RenderableType:
    """Tell what an audit found: verdict, adversary, rounds, comparison, trust, and what is open.

    What does not fit together comes right after the verdict.

    Args:
        audit: the simulated round.
        data: what the data is called.
    """
    parts = [_verdict(audit)]
    if audit.recovery.warnings:
        parts.append(cautions(audit.recovery.warnings))
    parts.append(facts(scene(audit)))
    if len(audit.recovery):
        parts.append(headed("How many fell in which round", round_bars(audit.recovery.by_round)))
    parts.append(headed("Compared with", _comparison(audit)))
    parts.append(headed("How far to trust it", facts(trust(audit))))
    if others := missing(audit):
        parts.append(headed("Not rebuilt", facts(others)))
    parts.append(headed("What this does not show", Text(limits(audit))))
    return panel(f"gradpeel audit: {printable(data)}", parts)


def _verdict(audit: Audit) -> RenderableType:
    return Text(verdict(audit), style="bold red" if audit.score.read else "bold yellow")


def _comparison(audit: Audit) -> RenderableType:
    rows, note = comparison(audit)
    size = audit.score.batch_size
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for (name, number), style in zip(rows, ("", "", "bold", "bold", ""), strict=True):
        cells = name, f"{number} of {size}", percent(number / size)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table if note is None else Group(table, Text(note))
