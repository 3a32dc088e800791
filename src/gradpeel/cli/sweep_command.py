"""`gradpeel sweep`: run a plan of audits, and resume it after an interruption."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradpeel.cli.cells_progress import watch_cells
from gradpeel.cli.output import announce
from gradpeel.cli.sweep_options import (
    Address,
    DataDir,
    EngineName,
    EngineOption,
    OpenPage,
    RetryFailed,
    Workers,
    build_engine,
)

__all__ = ["sweep_command"]

FAILED = 1


def sweep_command(
    *,
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN.toml", help="Which audits to run.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory of the results; an earlier run in it is resumed."
        ),
    ],
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    retry_failed: RetryFailed = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Also write results.parquet (extra 'parquet').")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    show: OpenPage = False,
) -> None:
    """Run all audits of a plan; if it is interrupted, start it again to resume.

    Writes results.sqlite, after each audit, and results.csv, timings.csv,
    manifest.json and report.html at the end. The exit code is 1 if an audit failed.

    \b
    datasets = ["cifar10", "mnist", "mine.npz"]
    designs = ["passive", "trap-weights", "soliton-free", "soliton-data"]
    weights = ["independent", "mirrored"]
    batch_sizes = [64, 128, 256]
    seeds = 5                   # or a list; a seed draws weights and samples
    neurons = [1000]            # this and everything below is optional
    tails = [[], [256, 128]]    # widths of further hidden layers
    dtypes = ["float64", "float32"]
    clients = [1, 4, 16]        # whose updates are added up
    noises = [0, 1e-6]
    lrs = [0, 0.01]             # of local training; 0 for one gradient
    local_steps = [1, 5]        # or local_epochs
    local_batch_sizes = [16]
    shuffle = false             # the first samples, as in the paper's script
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    with watch_cells(quiet=quiet) as on_progress:
        # Slow to import: whoever waits sees the clock run.
        from gradpeel.files import write_files  # noqa: PLC0415
        from gradpeel.reporting.page import PAGE  # noqa: PLC0415
        from gradpeel.reporting.page.sweep_page import sweep_html  # noqa: PLC0415
        from gradpeel.reporting.sweep_summary import sweep_summary  # noqa: PLC0415
        from gradpeel.sweeps import read_plan, sweep  # noqa: PLC0415

        wanted = read_plan(plan)
        runner = build_engine(engine, workers, address)
        results = sweep(
            wanted,
            out,
            engine=runner,
            data_dir=data_dir,
            base=plan.parent,
            retry_failed=retry_failed,
            parquet=parquet,
            on_progress=on_progress,
        )
    (page,) = write_files(out, {PAGE: sweep_html(results).encode()})
    Console().print(sweep_summary(results))
    if not quiet:
        announce(page, results.files)
    if show:
        webbrowser.open(page.absolute().as_uri())
    if results.failures:
        raise typer.Exit(FAILED)
