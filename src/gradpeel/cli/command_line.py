"""The command that repeats an audit, for its report."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource

__all__ = ["command_line"]

LEFT_OUT = {"out", "data_dir", "show", "as_json", "quiet", "samples"}
"""Where files lie and how the result is shown belongs to one machine, not to the audit."""


def command_line() -> str:
    """The running command with the options that were given and that change its result.

    Example:
        >>> @click.command()
        ... @click.option("--data")
        ... @click.option("--seed", default=0)
        ... @click.option("--out")
        ... def audit(data, seed, out):
        ...     click.echo(command_line())
        >>> from click.testing import CliRunner
        >>> print(CliRunner().invoke(audit, ["--data", "my data.npz", "--out", "here"]).output)
        gradpeel audit --data 'my data.npz'
        <BLANKLINE>
    """
    context = click.get_current_context()
    words = ["gradpeel", context.info_name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not is_given or name in LEFT_OUT:
            continue
        value = context.params[name]
        words.append(parameter.opts[0])
        if not (isinstance(parameter, click.Option) and parameter.is_flag):
            words.append(str(getattr(value, "value", value)))
    return shlex.join(words)
