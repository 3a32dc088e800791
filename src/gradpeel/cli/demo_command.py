"""`gradpeel demo`: three audits that need no data of yours."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gradpeel.cli.output import private_directory

if TYPE_CHECKING:
    from gradpeel.demo import Demonstration

__all__ = ["demo_command"]

PICTURE_WIDTH = 64
"""Columns of the photograph in the terminal."""


def demo_command(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write reports and figures into this new or empty directory, or replace an "
            "earlier demo in it. By default gradpeel-demo, or a new temporary directory if the "
            "current one is read-only.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    samples: Annotated[
        bool, typer.Option("--samples/--no-samples", help="Show samples in reports and figures.")
    ] = True,
    show: Annotated[
        bool, typer.Option("--open", help="Show the report of the photograph in the web browser.")
    ] = False,
) -> None:
    """Rebuild a photograph, scans and patient records, each from one gradient.

    The server changes nothing; it only reads the gradients. The data comes with
    gradpeel; nothing is downloaded.
    """
    from gradpeel.demo import FOLDERS, run_demo  # noqa: PLC0415 -- torch is slow to import

    with _default_place() if out is None else nullcontext(out) as chosen:
        held = {entry.name for entry in chosen.iterdir()} if chosen.is_dir() else set()
        is_earlier = bool(held) and held <= set(FOLDERS)
        place = chosen.with_name(f"{chosen.name}.new") if is_earlier else chosen
        with private_directory(place) as folder:
            run_demo(
                folder,
                seed=seed,
                on_progress=typer.echo,
                on_result=_show if samples else None,
                samples=samples,
            )
        if is_earlier:  # it goes only now that the new one is whole
            shutil.rmtree(chosen)
            place.rename(chosen)
    pages = [chosen / name / "report.html" for name in FOLDERS]
    first, *others = [page for page in pages if page.exists()]
    typer.echo(f"Report: {first}")
    if others:
        typer.echo(f"Others: {', '.join(map(str, others))}")
    if show:
        webbrowser.open(first.absolute().as_uri())


def _show(run: Demonstration) -> None:
    """Draw the photograph that was read from the gradient, if the terminal can."""
    from gradpeel.reporting.photo import photograph_read  # noqa: PLC0415
    from gradpeel.reporting.terminal_picture import (  # noqa: PLC0415
        shows_pictures,
        terminal_picture,
    )

    console = Console()
    if run.dataset.name == "photos" and shows_pictures(console):
        width = min(console.width - 1, PICTURE_WIDTH)
        console.print(terminal_picture(photograph_read(run.audit, run.dataset), width))


@contextmanager
def _default_place() -> Iterator[Path]:
    """`gradpeel-demo` here, or a temporary directory if nothing can be written here.

    After an error inside the block the temporary directory is gone.
    """
    place = Path("gradpeel-demo")
    is_empty = place.is_dir() and not any(place.iterdir())
    try:
        with TemporaryDirectory(dir=place if is_empty else Path(), prefix=".gradpeel-"):
            pass
    except OSError as error:
        elsewhere = Path(mkdtemp(prefix="gradpeel-demo-"))
        reason = error.strerror or error
        typer.echo(
            f"{place}: cannot be written here ({reason}); the demo goes to {elsewhere}, "
            "or where you say with --out",
            err=True,
        )
        try:
            yield elsewhere
        except BaseException:
            shutil.rmtree(elsewhere, ignore_errors=True)
            raise
    else:
        yield place
