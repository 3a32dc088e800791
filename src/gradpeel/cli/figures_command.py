"""`gradpeel paper figures`: the paper's figures, drawn from runs of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradpeel.cli.output import private_directory
from gradpeel.cli.parsing import parse_names
from gradpeel.cli.sweep_options import DataDir

if TYPE_CHECKING:
    from gradpeel.datasets import Dataset

__all__ = ["figures_command"]


def figures_command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Write the figures into this new or empty directory, which only you can read.",
        ),
    ],
    data_dir: DataDir = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Names of figures, such as board,seeds.",
            show_default="all seven",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    titles: Annotated[
        bool,
        typer.Option(
            "--titles/--no-titles",
            help="Write title and caption into the drawings; captions.json always has them.",
        ),
    ] = True,
) -> None:
    """Draw the paper's figures from our own runs, each as PNG, SVG and PDF.

    captions.json holds their captions and the numbers behind them. The
    benchmark data sets are needed; a caption says where the data differs
    from the paper's.

    \b
    gradpeel paper figures --out figures --data-dir data
    gradpeel paper figures --out boards --only board --no-titles
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    from gradpeel.datasets import load  # noqa: PLC0415 -- torch is slow to import
    from gradpeel.datasets.standard import STANDARD  # noqa: PLC0415
    from gradpeel.paper.figures import draw_figures  # noqa: PLC0415

    notes: dict[str, str] = {}

    def load_and_note(name: str) -> Dataset:
        dataset = load(name, data_dir=data_dir)
        difference = STANDARD[name].difference(dataset)
        if difference is not None:
            notes[name] = difference
        return dataset

    names = None if only is None else parse_names("only", only)
    with private_directory(out) as folder:
        files = draw_figures(
            load_and_note,
            folder,
            only=names,
            seed=seed,
            titles=titles,
            notes=notes,
            on_progress=typer.echo,
        )
    typer.echo(f"{len(files)} files in {out}")
