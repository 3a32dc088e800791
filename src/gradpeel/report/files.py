"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gradpeel.errors import InputError

__all__ = ["write_files"]


def write_files(out: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a directory, which is made if need be; each appears when it is whole.

    They show samples, so only the user may read them.

    Args:
        out: the directory.
        contents: what to write, by file name.

    Returns:
        The paths, in the order of `contents`.

    Raises:
        InputError: the directory cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        return [_write(out / name, content) for name, content in contents.items()]
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None


def _write(path: Path, content: bytes) -> Path:
    # mkstemp makes a file that only its owner can read, and the move keeps that.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
