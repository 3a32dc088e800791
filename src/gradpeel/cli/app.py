"""The commands under one roof."""

from __future__ import annotations

from typing import Annotated

import typer

from gradpeel._version import __version__
from gradpeel.cli.audit_command import audit_command
from gradpeel.cli.check_command import check_command
from gradpeel.cli.contains_command import contains_command
from gradpeel.cli.demo_command import demo_command
from gradpeel.cli.figures_command import figures_command
from gradpeel.cli.one_line import OneLineErrors
from gradpeel.cli.peel_command import peel_command
from gradpeel.cli.report_command import report_command
from gradpeel.cli.sweep_command import sweep_command
from gradpeel.cli.table1_command import table1_command

__all__ = ["app"]

app = typer.Typer(
    name="gradpeel",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    # The pretty traceback of a fault would print local variables, and those hold people's data.
    pretty_exceptions_enable=False,
)
app.command("demo")(demo_command)
app.command("audit")(audit_command)
app.command("check")(check_command)
app.command("peel")(peel_command)
app.command("contains")(contains_command)
app.command("report")(report_command)
app.command("sweep")(sweep_command)

paper = typer.Typer(no_args_is_help=True, help="The paper's table and figures, from our own runs.")
paper.command("table1")(table1_command)
paper.command("figures")(figures_command)
app.add_typer(paper, name="paper")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gradpeel {__version__}")
        raise typer.Exit


@app.callback(
    epilog="For auditing systems that you own or are permitted to test; active designs run in "
    "simulation only."
)
def _gradpeel(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """What does a gradient give away?

    In federated learning a client sends a gradient and keeps its data. gradpeel
    shows which of its samples a server can read from one gradient, and certifies
    each one without looking at the data.

    \b
    gradpeel demo                   see batches rebuilt from one gradient each
    gradpeel audit --data digits    audit a data set or a file of yours
    gradpeel check --data digits --max-readable 0.05    fail if more than that leaks
    gradpeel peel update.safetensors --model model.safetensors
    gradpeel contains update.safetensors --model model.safetensors --records x.npz
    gradpeel report results         regenerate the page of an audit
    gradpeel sweep plan.toml --out results    many audits, resumable
    gradpeel paper table1 --data-dir data     the paper's table beside ours
    gradpeel paper figures --data-dir data --out figures
    """  # noqa: D301 -- typer's mark for lines that stay as they are
