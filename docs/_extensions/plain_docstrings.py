"""Let docstrings that are written as plain text pass through Sphinx, and keep pages short.

Shapes such as `(batch, *sample_shape)` are plain text in the source. In reStructuredText the star
would open an emphasis, and a property described as "(neurons,) bool: ..." would seem to declare its
type. Code examples stay as they are.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

RESULTS = {
    "Audit",
    "BatchSize",
    "Cell",
    "Dataset",
    "Evidence",
    "Exposure",
    "Measurement",
    "Outcome",
    "Recovery",
    "Report",
    "Results",
    "Round",
    "RowCount",
    "Score",
    "Stage",
    "Target",
    "Unproven",
}
TYPE = "   :type: "
LONE_STAR = re.compile(r"(?<![\w*`\\])\*(?=\w)(?![^*\s][^*]*\*(?!\w))")


def escape(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Rewrite the lines of one docstring in place, as Sphinx asks for it."""
    if what == "property" and lines and lines[0].startswith("("):
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ", 1)
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[number] = LONE_STAR.sub(r"\\*", line)


def shorten(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Put the type of an attribute behind its name, after napoleon has put it under the text."""
    if what != "class":
        return
    places = [at for at, line in enumerate(lines) if line.startswith(".. attribute:: ")]
    for start in reversed(places):
        types = (at for at in range(start, len(lines)) if lines[at].startswith(TYPE))
        found = next(types, None)
        between = lines[start + 1 : found]
        if found is not None and not any(line.startswith(".. ") for line in between):
            lines.insert(start + 1, lines.pop(found))


def hide_signature(
    _app: Sphinx,
    _what: str,
    name: str,
    _object: object,
    _options: object,
    _signature: str | None,
    _returns: str | None,
) -> tuple[str, None] | None:
    """Show no signature of a class that nobody builds by hand: its attributes are listed anyway."""
    return ("", None) if name.rpartition(".")[2] in RESULTS else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Hook in before the docstrings are parsed."""
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("autodoc-process-docstring", shorten, priority=600)
    app.connect("autodoc-process-signature", hide_signature)
    return {"parallel_read_safe": True}
