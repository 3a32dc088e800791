"""`gradpeel demo`: something to look at, from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradpeel.cli.output import private_directory

__all__ = ["demo_command"]


def demo_command(
    *,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Write the pictures into this new or empty directory."),
    ] = Path("gradpeel-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seeds every draw.")] = 0,
) -> None:
    """Rebuild scans, patients and a photograph, each from one gradient of an untouched network.

    The data comes with scikit-learn; nothing is downloaded.
    """
    with private_directory(out) as folder:
        from gradpeel.demo import run_demo  # noqa: PLC0415 -- torch is slow to import

        run_demo(folder, seed=seed, on_progress=typer.echo)
    for picture in sorted(out.rglob("*.png")):
        typer.echo(f"see {picture}")
