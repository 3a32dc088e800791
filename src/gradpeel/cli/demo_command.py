"""`gradpeel demo`: three audits that need no data of yours."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated

import typer

from gradpeel.cli.output import private_directory

__all__ = ["demo_command"]


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
    """Rebuild scans, patient records and a photograph, each from one gradient.

    The networks are untouched. The data comes with gradpeel; nothing is
    downloaded.
    """
    from gradpeel.demo import FOLDERS, run_demo  # noqa: PLC0415 -- torch is slow to import

    with _default_place() if out is None else nullcontext(out) as chosen:
        held = {entry.name for entry in chosen.iterdir()} if chosen.is_dir() else set()
        is_earlier = bool(held) and held <= set(FOLDERS)
        place = chosen.with_name(f"{chosen.name}.new") if is_earlier else chosen
        with private_directory(place) as folder:
            run_demo(folder, seed=seed, on_progress=typer.echo, samples=samples)
        if is_earlier:  # it goes only now that the new one is whole
            shutil.rmtree(chosen)
            place.rename(chosen)
    for page in sorted(chosen.rglob("report.html")):
        typer.echo(f"see {page}")
    if show:
        webbrowser.open((chosen / "photos" / "report.html").absolute().as_uri())


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
