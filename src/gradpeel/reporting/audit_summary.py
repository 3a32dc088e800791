"""What a person reads after `gradpeel audit`.

First the verdict and the attacker, then how the samples were read and how far that can be trusted,
last its limits: a sample that one attack did not recover from one gradient is not thereby safe.

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
    │  All 4 samples were recovered from one gradient, with their labels, ...
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.audit import Audit
from gradpeel.inversion import Inversion
from gradpeel.reporting.bars import round_bars
from gradpeel.reporting.layout import cautions, facts, headed, panel
from gradpeel.reporting.members import membership
from gradpeel.reporting.reasons import missing
from gradpeel.reporting.reconstructions import leaked, reconstructions
from gradpeel.reporting.sentences import comparison, limits, setup, trust, verdict
from gradpeel.reporting.words import percent, printable

__all__ = ["summary"]


def summary(audit: Audit, *, data: str, inversion: Inversion | None = None) -> RenderableType:
    """What an audit found: verdict, attacker, rounds, membership, confidence and limits.

    Warnings come right after the verdict.

    Args:
        audit: the simulated round.
        data: what the data is called.
        inversion: the inputs that the audit reconstructed, where it did.
    """
    name = f"{audit.recovery.noun}s".capitalize()
    parts = [_verdict(audit)]
    if audit.recovery.warnings:
        parts.append(cautions(audit.recovery.warnings))
    is_inverted = inversion is not None
    parts.append(facts(setup(audit, is_inverted=is_inverted)))
    if len(audit.recovery):
        parts.append(headed(f"{name} recovered per round", round_bars(audit.recovery.by_round)))
    parts.append(headed(f"How the {name.lower()} were read", _comparison(audit)))
    if inversion is not None:
        parts.append(headed("Reconstructed inputs", Text(reconstructions(inversion))))
    if audit.leaked_tokens:
        parts.append(headed("Leaked tokens", Text(leaked(audit.leaked_tokens))))
    parts.append(headed("Membership", Text(membership(audit))))
    parts.append(headed("Confidence", facts(trust(audit))))
    if others := missing(audit):
        parts.append(headed("Not recovered", facts(others)))
    parts.append(headed("Limits of this audit", Text(limits(audit, is_inverted=is_inverted))))
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
    for name, number in rows:
        # The row above the bound is all that this attack got.
        style = "bold" if (name, number) == rows[-2] else ""
        cells = name, f"{number:,} of {size:,}", percent(number / size)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table if note is None else Group(table, Text(note))
