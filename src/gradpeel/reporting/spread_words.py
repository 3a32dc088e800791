"""What repeats of an audit found, in sentences and tables: the terminal and the page use the same.

Example:
    >>> import torch
    >>> from torch import nn
    >>> import gradpeel as gp
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> x, y = torch.rand(40, 30), torch.arange(40) % 2
    >>> verdict_of(gp.audit_many(model, x, y, batch_size=8, repeats=3))
    'In each of 3 repeats, a server can read all 8 samples.'
"""

from __future__ import annotations

from dataclasses import dataclass

from gradpeel.audits import Audits, Spread, TrainingCurve
from gradpeel.reporting.words import counted, percent

__all__ = [
    "Measure",
    "measures",
    "share_of",
    "spread_facts",
    "verdict_of",
    "worst_case",
]


_LIMITS = (
    "Not recovered is not safe: another batch, another round or another attack may recover the "
    "rest."
)

_PEELING = " This is peeling alone; the row cascade was not run."


@dataclass(frozen=True)
class Measure:
    """One thing that is measured in every repeat.

    Attributes:
        kind: its style in a chart.
        name: what it is called.
        shares: its spread, as shares of the batch.
    """

    kind: str
    name: str
    shares: Spread


def measures(found: Audits) -> list[Measure]:
    """What is shown of repeats, the most important first."""
    rows = [
        Measure("readable", "readable", found.readable_share),
        Measure("recovered", "recovered with proof", found.recovery_rate),
        Measure("bound", "peeling bound", found.peeling_bound),
    ]
    if (members := found.member_share) is not None:
        rows.append(Measure("members", "shown to have taken part", members))
    return rows


def share_of(spread: Spread) -> str:
    """A spread of shares in a cell of a table: the median, and the ends where they differ.

    Example:
        >>> share_of(Spread(0.25, 0.5, 1.0)), share_of(Spread(1.0, 1.0, 1.0))
        ('50.0 % (25.0 % to 100 %)', '100 %')
    """
    if spread.least == spread.most:
        return percent(spread.median)
    return f"{percent(spread.median)} ({percent(spread.least)} to {percent(spread.most)})"


def verdict_of(found: Audits | TrainingCurve) -> str:
    """How much a server can read: one sentence or two."""
    return _curve_verdict(found) if isinstance(found, TrainingCurve) else _verdict(found)


def _verdict(found: Audits) -> str:
    """From the least to the most."""
    repeats = len(found)
    if repeats == 1:
        return f"In the only repeat, a server can read {_range(found)}."
    same = found.readable_share.least == found.readable_share.most
    if same:
        return f"In each of {repeats:,} repeats, a server can read {_range(found)}."
    return (
        f"In {repeats:,} repeats, a server can read {_range(found)}, {_middle(found)} in the "
        f"median. {_complete(found)}"
    )


def _curve_verdict(curve: TrainingCurve) -> str:
    """At the first and at the last checkpoint."""
    first = f"At step {curve.steps[0]:,}, a server can read {_range(curve[0])}"
    if len(curve) == 1:
        return f"{first}."
    return f"{first}; at step {curve.steps[-1]:,}, {_range(curve[-1])}."


def spread_facts(found: Audits | TrainingCurve) -> list[tuple[str, str]]:
    """What differed, how far that can be trusted, and what it does not show."""
    several = list(found.at) if isinstance(found, TrainingCurve) else [found]
    every = [one for audits in several for one in audits]
    is_curve = isinstance(found, TrainingCurve)
    recovered = sum(one.score.recovered for one in every)
    false = sum(audits.false_certificates for audits in several)
    checks = (
        f"{counted(len(every), 'audit')}, {counted(recovered, every[0].recovery.noun)} recovered "
        f"with proof: {counted(false, 'false certificate')}."
    )
    return [
        ("What differs", _differs(several[0], is_curve=is_curve)),
        ("Confidence", checks),
        ("Limits", _LIMITS if any(one.attacker.effort for one in every) else _LIMITS + _PEELING),
    ]


def worst_case(found: Audits | TrainingCurve) -> str:
    """The audit that read most, in a sentence."""
    if isinstance(found, TrainingCurve):
        steps = zip(found.steps, found.at, strict=True)
        places = {
            id(one): f"step {step:,}" + (f", repeat {number}" if len(audits) > 1 else "")
            for step, audits in steps
            for number, one in enumerate(audits, start=1)
        }
    else:
        places = {id(one): f"repeat {number}" for number, one in enumerate(found, start=1)}
    worst = found.worst
    size = counted(worst.score.batch_size, worst.recovery.noun)
    return f"The audit that read most ({places[id(worst)]}) read {worst.score.read:,} of {size}."


def _differs(found: Audits, *, is_curve: bool) -> str:
    drawn = {
        "batches": "every repeat has another batch",
        "initialisations": "every repeat initialises the network again",
    }
    parts = [drawn[name] for name in found.varied]
    if is_curve:
        same = "the same batches" if len(found) > 1 else "the same batch"
        return f"The weights, from checkpoint to checkpoint; every one is audited on {same}."
    sentence = ", and ".join(parts) or "only the seed, of which designs, noise and order are drawn"
    return f"{sentence[0].upper()}{sentence[1:]}."


def _range(found: Audits) -> str:
    """From the least to the most, in samples or, of batches of different sizes, as shares."""
    noun, shares = found[0].recovery.noun, found.readable_share
    if len(found.batch_sizes) > 1:
        ends = dict.fromkeys((percent(shares.least), percent(shares.most)))
        return f"{' to '.join(ends)} of the {noun}s"
    (size,) = found.batch_sizes
    least, most = int(found.readable.least), int(found.readable.most)
    if least == size:
        return f"the only {noun}" if size == 1 else f"all {size:,} {noun}s"
    many = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{'none' if most == 0 else many} of {counted(size, noun)}"


def _middle(found: Audits) -> str:
    if len(found.batch_sizes) > 1:
        return percent(found.readable_share.median)
    return f"{found.readable.median:,g}"


def _complete(found: Audits) -> str:
    if not found.whole_batches:
        return "In none of them it can read the whole batch."
    return f"In {found.whole_batches:,} of them it can read the whole batch."
