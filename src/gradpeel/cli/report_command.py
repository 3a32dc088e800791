"""`gradpeel report`: regenerate the page of an audit or a sweep from the files it left."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gradpeel.errors import InputError

__all__ = ["report_command"]


def report_command(
    *,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="What `gradpeel audit --out`, `gradpeel demo` or `gradpeel sweep` wrote.",
            show_default=False,
        ),
    ],
    samples: Annotated[
        bool,
        typer.Option(
            "--samples/--no-samples",
            help="Show samples and labels, if the audit kept them for its report.",
        ),
    ] = True,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")] = False,
) -> None:
    """Regenerate report.html, one self-contained page, from report.json or a sweep.

    report.json need not come from a source you trust: it is checked, and
    nothing in it is executed.

    \b
    gradpeel audit --data digits --out results
    gradpeel report results --no-samples
    gradpeel report study    # a sweep
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    # The page needs torch only because the package does; --help need not wait for it.
    from gradpeel.files import write_files  # noqa: PLC0415
    from gradpeel.reporting.page import PAGE, VALUES, Report  # noqa: PLC0415
    from gradpeel.reporting.page.sweep_page import sweep_html  # noqa: PLC0415
    from gradpeel.sweeps import is_sweep, read_results  # noqa: PLC0415

    if is_sweep(directory):
        (page,) = write_files(directory, {PAGE: sweep_html(read_results(directory)).encode()})
        typer.echo(f"wrote {page}", err=True)
        if show:
            webbrowser.open(page.absolute().as_uri())
        return
    files = [directory / VALUES] if (directory / VALUES).exists() else []
    # A demo holds a folder for each of its audits.
    files += sorted(directory.glob(f"*/{VALUES}")) if directory.is_dir() else []
    if not files:
        raise InputError(f"{directory}: no {VALUES}: expected a directory that an audit wrote")
    # All are read before the first is written, so that a bad one leaves everything as it was.
    reports = [(file, Report.read(file)) for file in files]
    for file, report in reports:
        wanted = report if samples else Report(report.payload.without_samples())
        page = file.with_name(PAGE)
        if show:
            wanted.open(page)
        else:
            wanted.save(page)
        typer.echo(f"wrote {page}", err=True)
