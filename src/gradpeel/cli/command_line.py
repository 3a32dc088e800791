"""The command that repeats an audit, for its report."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

__all__ = ["command_line", "is_given"]

LEFT_OUT = {"out", "data_dir", "show", "as_json", "quiet", "samples"}
"""Where files lie and how the result is shown belongs to one machine, not to the audit."""
FILES = {"checkpoint", "checkpoints"}
"""Of these the name is shown, without the directory."""


def command_line(context: typer.Context) -> str:
    """The running command with the options that were given and that change its result.

    Example:
        >>> from typer.testing import CliRunner
        >>> app = typer.Typer()
        >>> @app.command()
        ... def audit(context: typer.Context, data: str = "", seed: int = 0, out: str = "") -> None:
        ...     print(command_line(context))
        >>> result = CliRunner().invoke(app, ["--data", "my data.npz", "--out", "here"])
        >>> print(result.output.strip())
        gradpeel audit --data 'my data.npz'
    """
    words = ["gradpeel", context.info_name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in LEFT_OUT or not is_given(context, name):
            continue
        value = context.params[name]
        is_flag = getattr(parameter, "is_flag", False)
        words.append((parameter.opts if value or not is_flag else parameter.secondary_opts)[0])
        if not is_flag:
            word = str(getattr(value, "value", value))
            words.append(Path(word).name if name in FILES else word)
    return shlex.join(words)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user stated an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
