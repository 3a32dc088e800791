"""Reading with care, writing whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from gradpeel.errors import InputError
from gradpeel.files import Header, Npz, replacing

DTYPES: list[np.dtype[Any]] = [np.dtype(code) for code in ("f8", "f4", "f2", "u1", "i8", "?", "U3")]
ARRAYS: st.SearchStrategy[NDArray[Any]] = hnp.arrays(
    st.sampled_from(DTYPES),
    hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4),
)


@settings(max_examples=80)
@given(arrays=st.dictionaries(st.sampled_from(["a", "x.y", "a.npy"]), ARRAYS), packed=st.booleans())
@pytest.mark.slow
def test_reads_what_numpy_wrote(arrays: dict[str, NDArray[Any]], *, packed: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        # NumPy's stubs take every keyword for its own flag.
        write: Callable[..., None] = np.savez_compressed if packed else np.savez
        write(path, **arrays)
        with Npz(path) as file:
            assert file.fields == tuple(arrays)
            for field, array in arrays.items():
                assert file.header(field) == Header(array.shape, array.dtype)
                assert file.header(field).size == array.size
                np.testing.assert_array_equal(file.read(field), array)
                assert file.read(field).dtype == array.dtype


def test_other_files_in_the_archive_are_no_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")
    with Npz(path) as file:
        assert file.fields == ("a",)


def test_the_file_is_closed_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(2))
    with Npz(path) as file:
        pass
    with pytest.raises(InputError, match="a cannot be read: "):
        file.read("a")


def archive(path: Path, content: bytes) -> Path:
    """An archive whose array `a` is `content`, intact or not."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", content)
    return path


def array(shape: str, *, values: int = 3, descr: str = "<f8") -> bytes:
    """The bytes of an array that claims `shape` and holds so many values of eight bytes."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(8 * values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (array("(4,)"), "a claims shape (4,) of float64, holds 24 bytes"),
        (array("(2,)"), "a claims shape (2,) of float64, holds 24 bytes"),
        (array("(1000000000000,)"), "a claims shape (1000000000000,) of float64, holds 24 bytes"),
        (array("(-3,)"), "a claims shape (-3,) of float64, holds 24 bytes"),
        (array("(-1, -3)"), "a claims shape (-1, -3) of float64, holds 24 bytes"),
        (array("(3,)", descr="<f4"), "a claims shape (3,) of float32, holds 24 bytes"),
        (array("(3,)", descr="nothing"), "a cannot be read: "),
        (array("'three'"), "a cannot be read: "),
        (array("(3,)")[:20], "a cannot be read: "),
        (b"no array at all", "a cannot be read: "),
        (b"", "a cannot be read: "),
    ],
)
def test_a_header_that_claims_what_is_not_there(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = archive(tmp_path / "a.npz", content)
    with Npz(path) as file, pytest.raises(InputError) as caught:
        file.header("a")
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_does_not_go_unnoticed(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", array("(3,)"))
    content = bytearray(path.read_bytes())
    content[content.index(bytes(24)) + 5] ^= 1
    path.write_bytes(content)
    with Npz(path) as file, pytest.raises(InputError, match="a cannot be read: "):
        file.read("a")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    with Npz(archive(tmp_path / "a.npz", stream.getvalue())) as file:
        assert file.header("a").dtype.hasobject
        with pytest.raises(InputError, match="a cannot be read: "):
            file.read("a")


def test_an_array_that_is_not_there(tmp_path: Path) -> None:
    with Npz(archive(tmp_path / "a.npz", array("(3,)"))) as file:
        for look in (file.header, file.read):
            with pytest.raises(InputError, match="b cannot be read: "):
                look("b")


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "text.npz").write_text("hello")
    for name, message in (
        ("missing.npz", "no such file"),
        ("folder.npz", "is a directory: expected an .npz file"),
        ("text.npz", "not an .npz file (no intact zip archive)"),
        ("text.npz/a.npz", f"cannot be opened: {os.strerror(errno.ENOTDIR)}"),
    ):
        path = tmp_path / name
        with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {message}')}$"):
            Npz(path)


def test_a_replaced_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    with replacing(path) as partial:
        assert partial.parent == tmp_path  # a move within one folder is all or nothing
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as partial:
            partial.write_text("ne")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_user_can_read_what_was_written(tmp_path: Path) -> None:
    with replacing(tmp_path / "result") as partial:
        partial.write_text("a gradient gives away samples")
    assert (tmp_path / "result").stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "result"
    message = f"{path}: cannot be written: {os.strerror(errno.ENOENT)}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"), replacing(path):
        pass
