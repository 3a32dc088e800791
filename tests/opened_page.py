"""A report opened in a browser, and questions to ask it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Opened"]


class Opened:
    """A page opened from disk, with all that it asked for and complained of."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        self.own = file.as_uri()
        page.goto(self.own)

    @property
    def elsewhere(self) -> list[str]:
        """Requests for anything that is not inside the page."""
        return [url for url in self.requests if url != self.own and not url.startswith("data:")]

    def state(self) -> dict[str, Any]:
        """What the canvas draws, by the numbers of samples and neurons."""
        state: dict[str, Any] = self.page.evaluate(
            """() => {
              const { state } = gradpeel.cascade, { neurons, samples } = gradpeel.page.cascade;
              return {
                round: state.round,
                left: samples.filter((_, column) => state.left[column]),
                degrees: Object.fromEntries(neurons.map((n, row) => [n, state.degrees[row]])),
                singletons: state.singletons.map((row) => neurons[row]),
              };
            }"""
        )
        return state

    def shown(self) -> list[int]:
        """The samples that cards are shown of."""
        samples: list[int] = self.page.evaluate("gradpeel.samples.shown()")
        return samples

    def choose(self, **choices: str) -> list[int]:
        """Set the selects of the samples, and tell which are shown."""
        for name, value in choices.items():
            self.page.select_option(f"#{name.replace('_', '-')}", value)
        return self.shown()

    def pages_on_paper(self) -> int:
        """Pages of the PDF that the browser prints."""
        printed = self.page.pdf(prefer_css_page_size=True, print_background=True)
        return len(re.findall(rb"/Type\s*/Page\b", printed))

    def open_details(self) -> None:
        """Show everything that can be unfolded."""
        self.page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")

    def violations(self, *, only: str | None = None) -> list[str]:
        """What axe-core calls serious or critical; by all of its rules, or by a single one."""
        axe = resources.files("axe_playwright_python") / "axe.min.js"
        self.page.evaluate(axe.read_text(encoding="utf-8"))
        options = {} if only is None else {"runOnly": [only]}
        found = self.page.evaluate("(options) => axe.run(document, options)", options)["violations"]
        return [
            f"{one['id']}: {node['html'][:120]}"
            for one in found
            for node in one["nodes"]
            if one["impact"] in {"serious", "critical"}
        ]
