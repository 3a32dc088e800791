"""The report of an audit: one page to look at, to save, to mail."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.files import write_files
from gradpeel.reporting.page.gather import gather
from gradpeel.reporting.page.payload import Payload
from gradpeel.reporting.page.reading import read_payload
from gradpeel.reporting.page.render import render

__all__ = ["PAGE", "VALUES", "Report", "report"]

PAGE, VALUES = "report.html", "report.json"
"""File names of a report in a directory of results, and of what it can be regenerated from."""


@dataclass(frozen=True, repr=False)
class Report:
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
    ) -> Report:
        """Make the report of an audit; the arguments are those of `gradpeel.report`.

        Raises:
            InputError: `audit` is not an audit.
        """
        given: object = audit
        if not isinstance(given, Audit):
            raise InputError(f"audit of type {type(given).__name__}: expected a gradpeel.Audit")
        return cls(gather(audit, dataset, samples=samples, command=command, compared=compared))

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

    def save(self, path: Path | str) -> Path:
        """Write the page to a file that only the user can read.

        Raises:
            InputError: it cannot be written.
        """
        path = Path(path)
        (written,) = write_files(path.parent, {path.name: self.html.encode()})
        return written

    def files(self) -> dict[str, bytes]:
        """The page and what it can be regenerated from, by file name."""
        return {PAGE: self.html.encode(), VALUES: f"{self.payload.to_json()}\n".encode()}

    def open(self, path: Path | str | None = None) -> Path:
        """Show the page in the web browser.

        Args:
            path: where to write it; by default a temporary directory that only the user can read.
                It is not removed: a browser may still be reading when Python ends.

        Returns:
            The file that was opened.
        """
        place = Path(tempfile.mkdtemp(prefix="gradpeel-")) / PAGE if path is None else Path(path)
        written = self.save(place)
        webbrowser.open(written.absolute().as_uri())
        return written

    def _repr_html_(self) -> str:
        """What Jupyter shows: the page in a frame of its own, which can reach nothing outside."""
        return (
            '<iframe sandbox="allow-scripts" title="gradpeel report" width="100%" height="720" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )


def report(
    audit: Audit,
    dataset: Dataset | None = None,
    *,
    samples: bool = True,
    command: str = "",
    compared: Mapping[str, Audit | None] = MappingProxyType({}),
) -> Report:
    """Make the report of an audit: one page, to `save`, to `open`, or to look at in Jupyter.

    Args:
        audit: what `gradpeel.audit` found.
        dataset: where its batch comes from: names the data, its labels and its features and knows
            their units; without it they are numbered.
        samples: whether to show samples, original and recovered, and labels. They are personal
            data, and an audit runs on data you own.
        command: the command that repeats the audit, shown with a button to copy it.
        compared: the same audit with one thing changed, by the name of the change, such as
            "float32"; the first screen shows their shares side by side, and names those that are
            None, which stands for an audit that was not finished.

    Raises:
        InputError: `audit` is not an audit.

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
    return Report.of(audit, dataset, samples=samples, command=command, compared=compared)
