"""What a person reads after `gradpeel check`: what is readable, batch by batch; never a record.

Example:
    >>> import torch
    >>> from rich.console import Console
    >>> from torch import nn
    >>> from gradpeel.checking import Budget, check_batches
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> checks = check_batches(model, [(torch.rand(4, 30), torch.arange(4) % 2)])
    >>> Console(width=90).print(check_summary(checks, Budget()))
    ╭─ gradpeel check ──────...
    │  The budget does not hold. ...
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.checking import Budget, Check, Checks, Verdict
from gradpeel.reporting.layout import headed, panel
from gradpeel.reporting.words import counted, percent

__all__ = ["check_summary"]

SHOWN = 20
"""Records that are listed, and sentences."""
NEURONS = 6
"""Neurons that are named for each."""


def check_summary(checks: Checks, budget: Budget) -> RenderableType:
    """What the updates of some batches give away.

    Args:
        checks: what was found.
        budget: what was allowed.
    """
    breaches = checks.breaches(budget)
    parts: list[RenderableType] = [_verdict(checks, budget)]
    if breaches:
        listed = [Text(f"{sentence[0].upper()}{sentence[1:]}.") for sentence in breaches[:SHOWN]]
        if len(breaches) > SHOWN:
            listed.append(Text(f"And {len(breaches) - SHOWN:,} more."))
        parts += listed
    parts.append(headed("Batches", _batches(checks)))
    peeled = _peeled(checks.worst)
    if peeled:
        number = checks.checks.index(checks.worst) + 1
        listing = _records(checks.worst, peeled)
        parts.append(headed(f"What peeling reads of batch {number}", listing))
    parts.append(
        Text(
            "Readable means that a server could read the record, with or without proof. A record "
            "that this check does not read is not thereby safe."
            if checks.worst.decoded
            else "Predicted from one forward pass: what peeling reads, and no other attack."
        )
    )
    return panel("gradpeel check", parts)


def _verdict(checks: Checks, budget: Budget) -> Text:
    verdict = checks.verdict(budget)
    records = counted(checks.records, "record")
    can = "can be read" if checks.worst.decoded else "would be read by peeling"
    said = f"{checks.readable:,} of {records} in {counted(len(checks), 'update')} {can}."
    if checks.members is not None:
        said += f" {checks.members:,} can be shown to have taken part."
    if verdict is Verdict.LEAKS:
        return Text(f"The budget does not hold. {said}", style="bold red")
    if verdict is Verdict.UNKNOWN:
        return Text(f"This cannot tell whether the budget holds. {said}", style="bold yellow")
    if budget != Budget(max_readable=1.0):  # which is none
        said = f"The budget holds. {said}"
    return Text(said, style="bold red" if checks.readable else "bold")


def _batches(checks: Checks) -> Table:
    table = Table("batch", "records", "readable", "", "peeling bound", "took part", box=None)
    for number, each in enumerate(checks, start=1):
        table.add_row(
            f"{number}",
            f"{each.records:,}",
            f"{each.readable:,}",
            percent(each.readable / each.records),
            f"{int((each.rounds > 0).sum()):,}",
            "not asked" if each.members is None else f"{each.members:,}",
        )
    return table


def _peeled(check: Check) -> list[int]:
    """Records that peeling reads, in its order; a defence may leave none of what it could reach."""
    reached = [i for i, neurons in enumerate(check.sources) if neurons and bool(check.read[i])]
    return sorted(reached, key=lambda i: (int(check.rounds[i]), i))


def _records(check: Check, reached: list[int]) -> Table:
    table = Table("record", "round", "through neurons", box=None)
    for i in reached[:SHOWN]:
        neurons = check.sources[i]
        more = f" and {len(neurons) - NEURONS:,} more" if len(neurons) > NEURONS else ""
        named = ", ".join(map(str, neurons[:NEURONS]))
        table.add_row(f"{i}", f"{int(check.rounds[i])}", named + more)
    if len(reached) > SHOWN:
        table.add_row("...", "", f"and {counted(len(reached) - SHOWN, 'record')} more")
    return table
