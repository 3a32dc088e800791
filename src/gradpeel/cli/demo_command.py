"""`gradpeel demo`: something to look at, from nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from gradpeel.cli.output import private_directory

__all__ = ["demo_command"]


def demo_command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Write reports and pictures here: a new or an empty directory, or an earlier "
            "demo.",
        ),
    ] = Path("gradpeel-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seeds every draw.")] = 0,
    samples: Annotated[
        bool, typer.Option("--samples/--no-samples", help="Show samples in reports and pictures.")
    ] = True,
) -> None:
    """Rebuild scans, patients and a photograph, each from one gradient of an untouched network.

    The data comes with scikit-learn; nothing is downloaded.
    """
    from gradpeel.demo import FOLDERS, run_demo  # noqa: PLC0415 -- torch is slow to import

    held = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    is_earlier = bool(held) and held <= set(FOLDERS)
    place = out.with_name(f"{out.name}.new") if is_earlier else out
    with private_directory(place) as folder:
        run_demo(folder, seed=seed, on_progress=typer.echo, samples=samples)
    if is_earlier:  # it goes only now that the new one is whole
        shutil.rmtree(out)
        place.rename(out)
    for page in sorted(out.rglob("report.html")):
        typer.echo(f"see {page}")
