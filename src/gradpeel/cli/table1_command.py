"""`gradpeel paper table1`: the paper's table of recovery rates beside ours."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradpeel.cli.cells_progress import watch_cells
from gradpeel.cli.output import announce
from gradpeel.cli.parsing import parse_names, parse_sizes
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

__all__ = ["table1_command"]

FAILED = 1
NARROWEST = 100


def table1_command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory of the results; an earlier run in it is resumed."
        ),
    ] = Path("gradpeel-table1"),
    data_dir: DataDir = None,
    datasets: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Such as cifar10,mnist.", show_default="all eight"),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(metavar="SIZES", help="Such as 64,512.", show_default="the paper's twelve"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Audits of each cell.")] = 5,
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Let the seed draw the samples; otherwise take the first of each data set, as "
            "the paper's script does.",
        ),
    ] = False,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Height and width of ImageNet's pictures.", show_default="64"),
    ] = None,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Also measure what every method reads with the row cascade; takes far longer.",
        ),
    ] = False,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned", help="Also measure the designs tuned and tuned-free, which the paper lacks."
        ),
    ] = False,
    workers: Workers = None,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress and no list of files.")
    ] = False,
    show: OpenPage = False,
) -> None:
    """Run all seven methods of the paper's table and show our rates beside the published ones.

    For each cell: our mean over seeds with its interval, the published rate and
    the peeling bound. Writes table1.csv, table1.md and table1.html, a heat map,
    and the rows of the sweep. If it is interrupted, start it again to resume.

    \b
    gradpeel paper table1 --data-dir data --seeds 3
    gradpeel paper table1 --data-dir data --datasets mnist --batch-sizes 64,512
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    with watch_cells(quiet=quiet) as on_progress:
        # Slow to import: whoever waits sees the clock run.
        from gradpeel.datasets.standard import STANDARD  # noqa: PLC0415
        from gradpeel.paper.table1 import BATCH_SIZES, Table1, table1_plan  # noqa: PLC0415
        from gradpeel.paper.table1_files import write_table1  # noqa: PLC0415
        from gradpeel.paper.table1_terminal import table1_text  # noqa: PLC0415
        from gradpeel.sweeps import sweep  # noqa: PLC0415

        plan = table1_plan(
            tuple(STANDARD) if datasets is None else parse_names("datasets", datasets),
            BATCH_SIZES if batch_sizes is None else parse_sizes("batch-sizes", batch_sizes),
            seeds,
            shuffle=shuffle,
            image_size=image_size,
            rows=rows,
            tuned=tuned,
        )
        runner = build_engine(engine, workers, address)
        results = sweep(
            plan,
            out,
            engine=runner,
            data_dir=data_dir,
            retry_failed=retry_failed,
            on_progress=on_progress,
        )
    for failure in results.failures:
        typer.echo(str(failure), err=True)
    if results.rows:
        table = Table1.of(results)
        written = [*write_table1(table, out), *results.files]
        console = Console()
        # A pipe has no width; a table cut at 80 columns would be of no use there.
        console = console if console.is_terminal else Console(width=NARROWEST)
        console.print(table1_text(table))
        page = out / "table1.html"
        if not quiet:
            announce(page, written)
        if show:
            webbrowser.open(page.absolute().as_uri())
    if results.failures:
        raise typer.Exit(FAILED)
