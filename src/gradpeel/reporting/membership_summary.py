"""What a person reads after `gradpeel contains`: counts, rates and reasons; never a record.

Example:
    >>> import torch
    >>> from rich.console import Console
    >>> from torch import nn
    >>> from gradpeel import contains, local_update
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(12, 30), torch.randint(2, (12,))
    >>> found = contains(model, local_update(model, x[:8], y[:8]), x)
    >>> Console(width=90).print(membership_summary(found))
    ╭─ gradpeel contains ──────...
    │  8 of 12 records took part in this update, 4 did not. ...
"""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType
from rich.text import Text

from gradpeel.membership import Membership
from gradpeel.reporting.layout import facts, headed, panel
from gradpeel.reporting.words import counted, percent, printable, scientific

__all__ = ["membership_summary"]


def membership_summary(found: Membership) -> RenderableType:
    """Which records took part in somebody's update, and how sure that is.

    Args:
        found: what `gradpeel.contains` returned.
    """
    parts: list[RenderableType] = [_verdict(found), facts(_rows(found))]
    if reasons := Counter(reason for reason in found.reasons if reason is not None):
        listed = [(f"{number:,}", f"{reason}.") for reason, number in reasons.most_common()]
        parts.append(headed("Why records are undecided", facts(listed)))
    parts.append(
        Text(
            "In means that this record, or one that the update cannot distinguish from it, took "
            "part. Whether somebody took part in a training round is personal data."
        )
    )
    return panel("gradpeel contains", parts)


def _verdict(found: Membership) -> Text:
    inside, outside, unknown = found.count("in"), found.count("out"), found.count("unknown")
    records = counted(len(found), "record")
    if unknown == len(found):
        return Text(f"The update cannot tell which of {records} took part.", style="bold yellow")
    text = f"{inside:,} of {records} took part in this update, {outside:,} did not"
    text += f"; {unknown:,} cannot be decided." if unknown else "."
    return Text(text, style="bold red" if inside else "bold")


def _rows(found: Membership) -> list[tuple[str, str]]:
    rows = [("Independent samples", f"{found.rank:,} can be seen in the update")]
    if found.space == "features":
        layer = printable(found.layer)
        rows.insert(0, ("Compared", f"by the feature vectors that enter layer `{layer}`"))
    for mask, name in (
        (found.mask("in"), "Distances, in"),
        (found.mask("out"), "Distances, out"),
    ):
        if bool(mask.any()):
            low, high = float(found.distances[mask].min()), float(found.distances[mask].max())
            rows.append((name, f"{scientific(low)} to {scientific(high)} of the record's norm"))
    rate = found.false_positive_rate
    if found.non_members:
        counts = f"{found.false_positives:,} of {counted(found.non_members, 'non-member')}"
        rows.append(("False positives", f"{counts}, a rate of at most {scientific(rate or 0.0)}"))
    elif rate is not None:
        rows.append(("False positives", f"estimated rate of at most {scientific(rate)}"))
    rows.append(("Power", f"{percent(found.power)} of such records would be recognised if in"))
    return rows
