"""The report of an audit: one page to look at, to save, to mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import overload

from gradpeel.audit import Audit
from gradpeel.audits import Audits, TrainingCurve
from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.inversion import Inversion
from gradpeel.reporting.page.document import PAGE, Document
from gradpeel.reporting.page.gather import gather
from gradpeel.reporting.page.payload import Payload
from gradpeel.reporting.page.reading import read_payload
from gradpeel.reporting.page.render import render
from gradpeel.reporting.page.spread_page import SpreadReport
from gradpeel.stopping import Trial

__all__ = ["PAGE", "VALUES", "Report", "report"]

VALUES = "report.json"
"""Name of the file that a report can be regenerated from."""


@dataclass(frozen=True, repr=False)
class Report(Document):
    """The page of one audit.

    Attributes:
        payload: everything it shows.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import gradpeel as gp
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> page = gp.report(gp.audit(model, torch.rand(8, 30), torch.arange(8) % 2))
        >>> page
        Report(All 8 samples were recovered from one gradient, with their labels, to ... digits.)
        >>> page.html.startswith("<!doctype html>")
        True
    """

    payload: Payload

    @classmethod
    def of(
        cls,
        audit: Audit,
        dataset: Dataset | None = None,
        *,
        samples: bool = True,
        command: str = "",
        compared: Mapping[str, Audit | None] = MappingProxyType({}),
        inversion: Inversion | None = None,
        weights: str = "",
        stopping: Sequence[Trial] = (),
    ) -> Report:
        """Make the report of an audit; the arguments are those of `gradpeel.report`.

        Raises:
            InputError: `audit` is not an audit, or `inversion` not one of it.
        """
        given: object = audit
        if not isinstance(given, Audit):
            raise InputError(f"audit of type {type(given).__name__}: expected a gradpeel.Audit")
        if inversion is not None and getattr(inversion, "likeness", None) is None:
            raise InputError("inversion: expected what `invert` of this audit found")
        return cls(
            gather(
                audit,
                dataset,
                samples=samples,
                command=command,
                compared=compared,
                inversion=inversion,
                weights=weights,
                stopping=stopping,
            )
        )

    @classmethod
    def read(cls, path: Path) -> Report:
        """Make a report from the `report.json` that an audit left; the file need not be trusted.

        Raises:
            InputError: the file cannot be read or is not such a file.
        """
        return cls(read_payload(path))

    def __repr__(self) -> str:
        return f"Report({self.payload.story.verdict})"

    @cached_property
    def html(self) -> str:
        """The page: one HTML file that needs nothing beside it."""
        return render(self.payload)

    def files(self) -> dict[str, bytes]:
        """The page and what it can be regenerated from, by file name."""
        return {PAGE: self.html.encode(), VALUES: f"{self.payload.to_json()}\n".encode()}


@overload
def report(
    audit: Audit,
    dataset: Dataset | None = None,
    *,
    samples: bool = True,
    command: str = "",
    compared: Mapping[str, Audit | None] = MappingProxyType({}),
    inversion: Inversion | None = None,
    weights: str = "",
    stopping: Sequence[Trial] = (),
) -> Report: ...
@overload
def report(
    audit: Audits | TrainingCurve,
    dataset: Dataset | None = None,
    *,
    samples: bool = True,
    command: str = "",
) -> SpreadReport: ...
def report(
    audit: Audit | Audits | TrainingCurve,
    dataset: Dataset | None = None,
    *,
    samples: bool = True,
    command: str = "",
    compared: Mapping[str, Audit | None] = MappingProxyType({}),
    inversion: Inversion | None = None,
    weights: str = "",
    stopping: Sequence[Trial] = (),
) -> Report | SpreadReport:
    """Make the report of an audit: one page, to `save`, to `open`, or to look at in Jupyter.

    Args:
        audit: what `gradpeel.audit` found; or what `gradpeel.audit_many` or
            `gradpeel.audit_checkpoints` found, whose page shows the spread and no samples.
        dataset: where its batch comes from: names the data, its labels and its features and knows
            their units; without it they are numbered.
        samples: whether to show samples, original and recovered, and labels. They are personal
            data, and an audit runs on data you own.
        command: the command that repeats the audit, shown with a button to copy it.
        compared: the same audit with one thing changed, by the name of the change, such as
            "float32"; the first screen shows their shares side by side, and names those that are
            None, which stands for an audit that was not finished.
        inversion: what `Audit.invert` reconstructed; the page then shows it beside the real inputs.
        weights: where the network's weights come from, such as "newly initialised" or "trained for
            20 rounds": an audit cannot know.
        stopping: what `gradpeel.what_stops` found; the page then has a section "What would stop
            this?".

    Raises:
        InputError: `audit` is not an audit, or `inversion` not one of it.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import gradpeel as gp
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> found = gp.audit(model, torch.rand(8, 30), torch.arange(8) % 2)
        >>> gp.report(found, samples=False).payload.samples[0].label is None
        True
    """
    if isinstance(audit, Audits | TrainingCurve):
        data = "own data" if dataset is None else dataset.name
        return SpreadReport(audit, data, command)
    return Report.of(
        audit,
        dataset,
        samples=samples,
        command=command,
        compared=compared,
        inversion=inversion,
        weights=weights,
        stopping=stopping,
    )
