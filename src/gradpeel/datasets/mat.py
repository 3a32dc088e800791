"""The first numbers of an array in a MATLAB 5 file, which is how SVHN comes.

After 128 bytes of header the file is a row of elements: a tag (type and number of bytes), then
that many bytes. An array is an element of elements: its flags, dimensions, name and numbers; often
it is compressed as a whole. `scipy.io.loadmat` reads such a file too, but all of it, and it makes
room for whatever a tag claims. This reader stops after the numbers that are wanted.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradpeel.datasets.raw import CHUNK, Bytes, open_file, read_exactly
from gradpeel.errors import InputError

__all__ = ["MatArray", "read_arrays"]

HEADER, TAG = 128, 8
MATRIX, COMPRESSED = 14, 15
INT8, INT32, UINT32 = 1, 5, 6
NARROW = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4"}
TYPES = NARROW | {7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MAX_DIMS, MAX_NAME = 32, 64


@dataclass(frozen=True, eq=False)
class MatArray:
    """An array of a file.

    Attributes:
        shape: what it claims; the first axis runs fastest.
        numbers: its first numbers in that order, (n,).
    """

    shape: tuple[int, ...]
    numbers: NDArray[Any]


def read_arrays(path: Path, limits: dict[str, int]) -> dict[str, MatArray]:
    """Read the first numbers of some arrays.

    Args:
        path: the file.
        limits: how many numbers at most, by name of the array.

    Raises:
        InputError: the file is not a MATLAB 5 file or is damaged, or an array is missing.
    """
    arrays: dict[str, MatArray] = {}
    with open_file(path) as (file, size):
        _check_header(bytes(file.read(HEADER)), path)
        for kind, start, end in _elements(file, size, path):
            file.seek(start)
            part = _Part(file, end - start)
            found = None
            if kind == MATRIX:
                found = _read_array(part, end - start, limits, path)
            elif kind == COMPRESSED:
                inner = _Inflated(part)
                within, claimed, _ = _read_tag(inner, path)
                if within == MATRIX:
                    found = _read_array(inner, claimed, limits, path)
            if found is not None:
                arrays.setdefault(*found)
            if len(arrays) == len(limits):
                return arrays
    missing = [name for name in limits if name not in arrays]
    raise InputError(f"{path}: {', '.join(missing)} missing: expected arrays of these names")


def _check_header(header: bytes, path: Path) -> None:
    if header[-4:] != b"\x00\x01IM" or len(header) != HEADER:
        raise InputError(f"{path}: not a MATLAB 5 file (little-endian, before version 7.3)")


def _elements(file: Any, size: int, path: Path) -> Iterator[tuple[int, int, int]]:  # noqa: ANN401
    """Type, start and end of each element of the file."""
    start = HEADER
    while start < size:
        file.seek(start)
        kind, claimed = struct.unpack("<II", read_exactly(file, TAG, path))
        start += TAG
        if claimed > size - start:
            rule = f"the file ends after {size - start}"
            raise InputError(f"{path}: an element claims {claimed} bytes: {rule}")
        yield kind, start, start + claimed
        start += claimed


class _Part:
    """A number of bytes of a file from where it stands."""

    def __init__(self, file: Bytes, count: int) -> None:
        self._file, self._left = file, count

    def read(self, count: int, /) -> bytes:
        content = self._file.read(min(count, self._left))
        self._left -= len(content)
        return content


class _Inflated:
    """What compressed bytes hold, inflated piece by piece: a small file may claim gigabytes."""

    def __init__(self, part: _Part) -> None:
        self._part, self._inflater = part, zlib.decompressobj()
        self._ready = b""

    def read(self, count: int, /) -> bytes:
        while not self._ready:
            packed = self._inflater.unconsumed_tail or self._part.read(CHUNK)
            self._ready = self._inflater.decompress(packed, CHUNK)
            if not packed and not self._ready:
                return b""
        content, self._ready = self._ready[:count], self._ready[count:]
        return content


def _read_tag(stream: Bytes, path: Path) -> tuple[int, int, bytes]:
    """Type and number of bytes, and the bytes themselves where they are within the tag."""
    tag = bytes(read_exactly(stream, TAG, path))
    kind, claimed = struct.unpack("<II", tag)
    if kind >> 16:
        count = kind >> 16
        if count > 4:
            raise InputError(f"{path}: a small element claims {count} bytes: expected at most 4")
        return kind & 0xFFFF, count, tag[4 : 4 + count]
    return kind, claimed, b""


def _read_small(stream: Bytes, kind: int, most: int, path: Path) -> bytes:
    """An element that is short, such as a name."""
    found, count, content = _read_tag(stream, path)
    if found != kind or count > most:
        rule = f"expected type {kind} of at most {most} bytes"
        raise InputError(f"{path}: an element has type {found} and {count} bytes: {rule}")
    if not content:
        # Elements begin at multiples of 8.
        content = bytes(read_exactly(stream, count + -count % 8, path))[:count]
    return content


def _read_array(
    stream: Bytes, claimed: int, limits: dict[str, int], path: Path
) -> tuple[str, MatArray] | None:
    """Name and first numbers of an array, or None where it is not wanted."""
    flags = _read_small(stream, UINT32, 8, path)
    dims = np.frombuffer(_read_small(stream, INT32, 4 * MAX_DIMS, path)[: 4 * MAX_DIMS], "<i4")
    name = _read_small(stream, INT8, MAX_NAME, path).decode("ascii")
    if name not in limits:
        return None
    # The second byte holds the marks of a complex (8) and of a logical array (2).
    if len(flags) != 8 or not 6 <= flags[0] <= 15 or flags[1] & 8:
        raise InputError(f"{path}: {name} is no array of real numbers")
    shape = tuple(dims.tolist())
    kind, count, content = _read_tag(stream, path)
    if kind not in TYPES:
        rule = f"expected one of {', '.join(map(str, TYPES))}"
        raise InputError(f"{path}: {name} holds numbers of type {kind}: {rule}")
    dtype = np.dtype(TYPES[kind])
    # Python integers, because the product of hostile dimensions leaves 64 bits.
    size = 1
    for length in shape:
        size *= max(length, 0)
    if size * dtype.itemsize != count or count > claimed:
        raise InputError(f"{path}: {name} claims shape {shape} of {dtype}, holds {count} bytes")
    taken = min(size, limits[name]) * dtype.itemsize
    numbers = content[:taken] if content else read_exactly(stream, taken, path)
    return name, MatArray(shape, np.frombuffer(numbers, dtype))
