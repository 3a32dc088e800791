"""Files of others are read with care, and files of ours are written whole or not at all.

An `.npz` file that is passed around is treated as hostile: nothing in it is unpickled (that would
run what its author wrote), and what its headers claim is checked before any array is read.

Example:
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.npz"
    ...     np.savez(path, a=np.arange(6).reshape(2, 3))
    ...     with Npz(path) as file:
    ...         file.header("a").shape, file.read("a").sum().item()
    ((2, 3), 15)
"""

from __future__ import annotations

import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradpeel.errors import InputError

__all__ = [
    "Header",
    "Npz",
    "check_path",
    "is_file",
    "make_directory",
    "replacing",
    "write_files",
    "write_npz",
]


def check_path(path: Path) -> None:
    r"""Refuse a path that no file system takes.

    Raises:
        InputError: it holds NUL, or characters that are none.

    Example:
        >>> check_path(Path("a\0b"))
        Traceback (most recent call last):
        gradpeel.errors.InputError: path='a\x00b': expected text without NUL and surrogates
    """
    try:
        is_text = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise InputError(f"path={str(path)!r}: expected text without NUL and surrogates")


def is_file(path: Path) -> bool:
    """Is there a file at a path?

    Raises:
        InputError: it cannot be determined, for example because the path is too long.
    """
    check_path(path)
    try:
        return path.is_file()
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror or error}") from None


def make_directory(path: Path) -> None:
    """Make a directory that only the user can read, with its parents, unless it is there already.

    Raises:
        InputError: it cannot be made.
    """
    check_path(path)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


@dataclass(frozen=True)
class Header:
    """What an array in a file claims to be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


class Npz:
    """An open `.npz` file; use it in a `with` block.

    Raises:
        InputError: the file is missing, a directory, not readable, or no intact archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except IsADirectoryError:
            raise InputError(f"{path}: is a directory: expected an .npz file") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be opened: {error.strerror or error}") from None
        except Exception:  # noqa: BLE001 -- a damaged archive raises more than BadZipFile
            raise InputError(f"{path}: not an .npz file (no intact zip archive)") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._archive.close()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the arrays."""
        names = self._archive.namelist()
        return tuple(name.removesuffix(".npy") for name in names if name.endswith(".npy"))

    def header(self, field: str) -> Header:
        """What an array claims to be, checked against the bytes it has.

        Raises:
            InputError: the header cannot be read, or claims another size.
        """
        with self._told_in_one_line(field), self._archive.open(f"{field}.npy") as stream:
            # Version 3.0 is for field names of structured types, which no array here may have.
            is_first = npy.read_magic(stream) == (1, 0)
            read = npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0
            shape, _, dtype = read(stream)
            held = self._archive.getinfo(f"{field}.npy").file_size - stream.tell()
        # A few bytes may claim to be an array of any size, and numpy allocates before it reads.
        claimed = -1 if min(shape, default=0) < 0 else math.prod(shape) * dtype.itemsize
        if claimed != held and not dtype.hasobject:
            claim = f"claims shape {shape} of {dtype}, holds {held} bytes"
            raise InputError(f"{self.path}: {field} {claim}")
        return Header(shape, dtype)

    def read(self, field: str) -> NDArray[Any]:
        """Read an array whose header was accepted.

        Raises:
            InputError: it cannot be read.
        """
        with self._told_in_one_line(field), self._archive.open(f"{field}.npy") as stream:
            # allow_pickle=False: unpickling runs what the file's author wrote.
            array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
            # zipfile compares the checksum at the end, one read after the array's last byte.
            stream.read(1)
        return array

    @contextmanager
    def _told_in_one_line(self, field: str) -> Iterator[None]:
        """Name file and array in whatever a damaged archive makes zipfile, zlib or numpy raise."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- the three raise a dozen unrelated types
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{self.path}: {field} cannot be read: {reason}") from None


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under any names; `numpy.savez` keeps some of them for its own arguments."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                npy.write_array(stream, np.asarray(array, order="C"), allow_pickle=False)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write beside `path` and move into place at the end, so that no half-written file is left.

    Raises:
        InputError: the folder cannot be written to.
    """
    check_path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        try:
            partial.replace(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def write_files(out: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a directory, which is made if need be; each appears when it is whole.

    They may show samples, so only the user can read them.

    Args:
        out: the directory.
        contents: what to write, by file name.

    Returns:
        The paths, in the order of `contents`.

    Raises:
        InputError: the directory cannot be written to.
    """
    make_directory(out)
    for name, content in contents.items():
        # What `replacing` hands out only its owner can read, and the move keeps that.
        with replacing(out / name) as partial:
            try:
                partial.write_bytes(content)
            except OSError as error:
                reason = error.strerror or error
                raise InputError(f"{out / name}: cannot be written: {reason}") from None
    return [out / name for name in contents]
