"""Options that all commands which run sweeps have in common."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from gradpeel.sweeps import Engine

__all__ = [
    "Address",
    "DataDir",
    "EngineName",
    "EngineOption",
    "OpenPage",
    "RetryFailed",
    "Workers",
    "build_engine",
]

WHERE = "Where it runs"


class EngineName(StrEnum):
    """What runs the cells."""

    LOCAL = "local"
    RAY = "ray"


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory of the benchmark data sets: NAME.npz files, or their original files.",
        show_default="the cache, then a download",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Number of audits that run at a time, each on one thread.",
        show_default="one per core",
        rich_help_panel=WHERE,
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Processes on this machine, or tasks on a Ray cluster (extra 'ray').",
        rich_help_panel=WHERE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="The Ray cluster to run on.",
        show_default="a local Ray",
        rich_help_panel=WHERE,
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed",
        help="Run audits again that failed in an earlier run.",
        rich_help_panel=WHERE,
    ),
]

OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")]


def build_engine(name: EngineName, workers: int | None, address: str | None) -> Engine:
    """Make the engine that the options name.

    Raises:
        InputError: an address for the local engine, or Ray is not installed.
    """
    from gradpeel.sweeps import LocalEngine, RayEngine  # noqa: PLC0415 -- torch is slow to import

    if name is EngineName.RAY:
        return RayEngine(workers, address)
    if address is not None:
        raise InputError(f"address={address!r}: engine local has no address; ray has")
    return LocalEngine(workers or os.cpu_count() or 1)
