"""What every page is made with: one HTML file, styles and scripts inside, nothing from anywhere.

A page is a template that extends `base.html.j2`, a style sheet and scripts of its own, and values
that its scripts read from the element `#data`.

Formal guarantees:

- Every text is escaped, in HTML by Jinja's autoescape, in JSON by `embedded`.
- The page's content security policy lets it run its own script and style, known by their hashes,
  show pictures that are inside it, and nothing else: not even a text that slipped through could
  run, or ask a server for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gradpeel.reporting.words import measured, percent, scientific

__all__ = ["embedded", "fill"]

PACKAGE = "gradpeel.reporting.page"
_CODE = re.compile(r"`([^`]*)`")
_POWER = re.compile(r"(\d(?:\.\d+)?)e([+-])0?(\d+)")


def fill(
    template: str,
    *,
    styles: tuple[str, ...],
    scripts: tuple[str, ...] = (),
    data: Mapping[str, object] = MappingProxyType({}),
    **context: object,
) -> str:
    """Make a page.

    Args:
        template: its template, which extends `base.html.j2`.
        styles: its own style sheets; they come after `base.css` and before `print.css`.
        scripts: its scripts, in the order they run; `start.js` comes before them. A page without
            any runs none.
        data: what they read, as `gradpeel.page`.
        context: what the template shows.
    """
    style = _assets("base.css", *styles, "print.css")
    script = _assets("start.js", *scripts) if scripts else ""
    page = _environment().get_template(template)
    return page.render(
        style=style,
        script=script,
        policy=_policy(style, script),
        data=embedded(dict(data)),
        **context,
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
def _assets(*names: str) -> str:
    folder = resources.files(PACKAGE) / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["measured"] = measured
    environment.filters["percent"] = percent
    environment.filters["scientific"] = scientific
    environment.filters["typeset"] = _typeset
    environment.filters["coded"] = _coded
    return environment


def _coded(text: str) -> Markup:
    """Escape a sentence and set what stands in backticks as code."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(marked)  # noqa: S704 -- escaped above


def _typeset(text: str) -> Markup:
    """Like `_coded`, and write powers of ten as people do: 1.5e-09 as 1.5 x 10 to the -9."""

    def power(found: re.Match[str]) -> str:
        digits, sign, exponent = found.groups()
        minus = "\N{MINUS SIGN}" if sign == "-" else ""
        return f'<span class="nb">{digits} × 10<sup>{minus}{exponent}</sup></span>'

    return Markup(_POWER.sub(power, str(_coded(text))))  # noqa: S704 -- escaped above
