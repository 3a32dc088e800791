"""Directories of results that appear whole or not at all, what they hold, and plain JSON."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gradpeel.errors import InputError

__all__ = ["AsJson", "announce", "private_directory", "to_json"]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@contextmanager
def private_directory(path: Path) -> Iterator[Path]:
    """Give a directory to fill, and move what it holds to `path` when the block ends well.

    Formal guarantees:

    - after an error or Ctrl-C inside the block nothing is left, neither at `path` nor beside it;
    - nothing that stood at `path` before is overwritten;
    - only the user can read the directory (0700) and its files (0600), at every moment.

    Args:
        path: a directory that is empty or does not exist yet; missing parents are made.

    Raises:
        InputError: `path` is a file, a directory that holds something, or in a place that cannot
            be written to.
    """
    from gradpeel.files import check_path  # noqa: PLC0415 -- it loads numpy

    check_path(path)
    exists = path.is_dir()
    if exists and any(path.iterdir()):
        raise InputError(f"{path}: holds files: expected a new or an empty directory")
    if not exists and os.path.lexists(path):
        raise InputError(f"{path}: is a file: expected a new or an empty directory")
    # On the same file system as `path`, so that moving is renaming. Inside it where it exists: it
    # may be the one place the user can write to, such as a volume of a container.
    home = path if exists else next(above for above in path.absolute().parents if above.exists())
    try:
        temporary_directory = tempfile.TemporaryDirectory(dir=home, prefix=".gradpeel-")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    with temporary_directory as temporary:
        draft = Path(temporary) / "draft"
        draft.mkdir(mode=0o700)
        yield draft
        for entry in draft.rglob("*"):
            entry.chmod(0o700 if entry.is_dir() else 0o600)
        if exists:
            path.chmod(0o700)
            for entry in draft.iterdir():
                entry.rename(path / entry.name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.rename(path)


def announce(page: Path, others: Iterable[Path]) -> None:
    """Name the one page to open, and in a second line what else was written, on stderr.

    Args:
        page: the page.
        others: the files beside it; the page itself may be among them.
    """
    typer.echo(f"Report: {page}", err=True)
    beside = sorted(path.name for path in others if path != page)
    if beside:
        typer.echo(f"Also in {page.parent}: {', '.join(beside)}", err=True)


def to_json(numbers: Mapping[str, object], *, indent: int | None = None) -> str:
    """Write one JSON object; NaN and infinity, for which JSON has no word, become null.

    Example:
        >>> to_json({"rate": float("nan"), "rounds": [3, 1]})
        '{"rate": null, "rounds": [3, 1]}'
    """
    return json.dumps(_finite(numbers), allow_nan=False, indent=indent)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
