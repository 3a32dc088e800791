"""The page as one HTML file: styles, scripts and pictures inside, nothing loaded from anywhere.

Formal guarantees:

- Every text of the payload is escaped, in HTML by Jinja's autoescape, in JSON by `embedded`.
- The page's content security policy lets it run its own script and style, known by their hashes,
  show pictures that are inside it, and nothing else: not even a text that slipped through could
  run, or ask a server for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gradpeel.report.page.charts import bars, degree_bars, probability_bars, scatter
from gradpeel.report.page.payload import Payload
from gradpeel.report.words import percent

__all__ = ["embedded", "render"]

STYLES = ("base.css", "report.css", "print.css")
SCRIPTS = ("start.js", "cascade.js", "graph.js", "samples.js")
_SMALL = re.compile(r"\d(?:\.\d+)?e-\d+")
ENDS = 6
"""Samples shown at either end of the scale of atypicality, and on the first screen."""


def render(payload: Payload) -> str:
    """Make the page of a payload."""
    style, script = _asset(STYLES), _asset(SCRIPTS)
    shown = payload.as_dict()
    del shown["story"], shown["risk"]
    by_degree = degree_bars(payload.risk.degrees, payload.risk.target)
    by_share = probability_bars(payload.risk.degrees)
    by_type = sorted(payload.samples, key=lambda sample: (sample.atypicality, sample.index))
    fallen = sorted((s for s in payload.samples if s.round), key=lambda sample: sample.risk)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            page=payload,
            story=payload.story,
            style=style,
            script=script,
            policy=_policy(style, script),
            data=embedded(shown),
            scatter=scatter(payload.risk),
            by_degree=by_degree,
            degree_chart=bars(by_degree, labels=6),
            by_share=by_share,
            share_chart=bars(by_share, labels=6),
            typical=by_type[:ENDS],
            atypical=by_type[: -ENDS - 1 : -1],
            most_exposed=fallen[:ENDS],
        )
    )


def embedded(values: object) -> str:
    r"""JSON that can stand inside a script element: no letter of it ends or opens a tag.

    Example:
        >>> embedded({"name": "</script><!--"})
        '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


@cache
def _asset(names: tuple[str, ...]) -> str:
    folder = resources.files("gradpeel.report.page") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gradpeel.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(text: str) -> Markup:
    """Escape a sentence, and keep its numbers on one line: browsers break 1e-09 at its minus."""
    return Markup(_SMALL.sub(r'<span class="nb">\g<0></span>', str(escape(text))))  # noqa: S704
