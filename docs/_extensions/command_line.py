"""The directive `command`: a command of ours with its options, as `--help` prints them.

    ```{command} audit
    ```

The text comes from the command itself, so that the page cannot differ from it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gradpeel.cli import main as app

FIXED = "\b"
"""Marks a paragraph whose lines stay as they are; typer's convention."""


class Command(SphinxDirective):
    """One command: what it does, its arguments, its options."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Write the command as Markdown, and have that parsed."""
        words = self.arguments[0].split()
        command: Any = typer.main.get_command(app)
        context: Any = command.make_context("gradpeel", [], resilient_parsing=True)
        for word in words:
            command = command.get_command(context, word)
            context = command.make_context(word, [], parent=context, resilient_parsing=True)
        text = "\n".join(_markdown(command, context))
        return self.parse_text_to_nodes(text)


def _markdown(command: Any, context: Any) -> list[str]:  # noqa: ANN401 -- click has no stubs here
    usage = " ".join(command.collect_usage_pieces(context))
    lines = ["```sh", f"{context.command_path} {usage}", "```", "", *_paragraphs(command.help)]
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        entry = _entry(parameter, context)
        if entry is not None:
            is_argument = parameter.param_type_name == "argument"
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault("Arguments" if is_argument else panel, []).append(entry)
    for panel, entries in panels.items():
        lines += ["", f"**{panel}**", "", *entries]
    return lines


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.startswith(FIXED):
            code = paragraph.removeprefix(FIXED).strip("\n")
            lines += ["```text", *code.splitlines(), "```", ""]
        else:
            lines += [" ".join(paragraph.split()), ""]
    return lines


def _entry(parameter: Any, context: Any) -> str | None:  # noqa: ANN401
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name}`\n: {parameter.help}\n"
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    names, text = record
    return f"`{' '.join(names.split())}`\n: {_plain(text)}\n"


def _plain(text: str) -> str:
    """Help as one line; brackets of rich and Markdown do not meet."""
    return " ".join(text.split()).replace("\\[", "[").replace("[", r"\[").replace("*", r"\*")


def setup(application: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    application.add_directive("command", Command)
    return {"parallel_read_safe": True}
