"""The page of repeated audits, and of the checkpoints of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gradpeel._version import __version__
from gradpeel.audit import Audit
from gradpeel.audits import Audits, TrainingCurve
from gradpeel.reporting.page.document import Document
from gradpeel.reporting.page.setting import setting_of
from gradpeel.reporting.page.shell import fill
from gradpeel.reporting.page.spread_charts import spread_chart
from gradpeel.reporting.spread_words import (
    measures,
    share_of,
    spread_facts,
    verdict_of,
    worst_case,
)
from gradpeel.reporting.words import percent, printable

__all__ = ["SpreadReport"]


@dataclass(frozen=True, repr=False)
class SpreadReport(Document):
    """The page of repeated audits, or of the checkpoints of a training run.

    Attributes:
        found: the audits.
        data: what the data is called.
        command: the command that repeats them, where there is one.
        worst_page: where the report of the audit that read most is, as seen from this page.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import gradpeel as gp
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> x, y = torch.rand(40, 30), torch.arange(40) % 2
        >>> gp.report(gp.audit_many(model, x, y, batch_size=8, repeats=2))
        SpreadReport(In each of 2 repeats, a server can read all 8 samples.)
    """

    found: Audits | TrainingCurve
    data: str = "own data"
    command: str = ""
    worst_page: str = ""

    def __repr__(self) -> str:
        return f"SpreadReport({verdict_of(self.found)})"

    @cached_property
    def html(self) -> str:
        """The page: one HTML file that needs nothing beside it, and shows no samples."""
        return _html(self)


def _html(page: SpreadReport) -> str:
    found = page.found
    if isinstance(found, TrainingCurve):
        steps = list(zip(found.steps, found.at, strict=True))
        audits = [(f"{step:,}", *row) for step, at in steps for row in _audits(at)]
        first, heading = found[0], "Leakage over training"
        rows = [(f"{s:,}", *(share_of(one.shares) for one in measures(at))) for s, at in steps]
        head = ("step", *(one.name for one in measures(first)))
    else:
        first, heading = found, "Spread over the repeats"
        audits = _audits(found)
        rows = [
            (one.name, *map(percent, (one.shares.least, one.shares.median, one.shares.most)))
            for one in measures(found)
        ]
        head = ("share of the batch", "least", "median", "most")
    chart = spread_chart(found)
    return fill(
        "spread.html.j2",
        styles=("sweep.css", "spread.css"),
        data_name=printable(page.data),
        verdict=verdict_of(found),
        facts=spread_facts(found),
        heading=heading,
        chart=chart,
        has_whiskers=any(m.low != m.high for line in chart.lines for m in line.marks),
        is_curve=isinstance(found, TrainingCurve),
        head=head,
        rows=rows,
        worst=worst_case(found),
        worst_page=page.worst_page,
        audits=audits,
        setting=_setting(first[0]),
        command=printable(page.command, 400) if page.command else "",
        made_with=__version__,
    )


def _audits(found: Audits) -> list[tuple[str, ...]]:
    """Of every audit: repeat, batch size, and the counts."""
    rows = []
    for number, one in enumerate(found, start=1):
        score = one.score
        members = "not asked" if one.refuses_membership else f"{one.membership.count('in'):,}"
        bound = round(score.peeling_bound * score.batch_size)
        counts = (score.batch_size, score.read, score.recovered, bound)
        rows.append((str(number), *(f"{count:,}" for count in counts), members))
    return rows


def _setting(audit: Audit) -> list[tuple[str, str]]:
    """What all audits have in common."""
    return [row for row in setting_of(audit) if row[0] not in {"Seed", "Batch size"}]
