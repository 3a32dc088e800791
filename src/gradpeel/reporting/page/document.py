"""A page to save, to open and to look at in Jupyter."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from pathlib import Path

from gradpeel.files import write_files

__all__ = ["PAGE", "Document"]

PAGE = "report.html"
"""File name of a page in a directory of results."""


class Document(ABC):
    """One HTML file that needs nothing beside it."""

    @property
    @abstractmethod
    def html(self) -> str:
        """The page."""

    def save(self, path: Path | str) -> Path:
        """Write the page to a file that only the user can read.

        Raises:
            InputError: it cannot be written.
        """
        path = Path(path)
        (written,) = write_files(path.parent, {path.name: self.html.encode()})
        return written

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
