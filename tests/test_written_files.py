from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from gradpeel.errors import InputError
from gradpeel.files import write_files


def test_writes_into_a_new_directory(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    paths = write_files(out, {"one": b"1", "two": b"2"})
    assert paths == [out / "one", out / "two"]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]


def test_replaces_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    write_files(tmp_path, {"one": b"new"})
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_bytes() == b"new"


def test_only_the_user_can_read_them(tmp_path: Path) -> None:
    (path,) = write_files(tmp_path, {"one": b"1"})
    assert path.stat().st_mode & 0o077 == 0


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_bytes(b"old")

    def interrupted(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, {"one": b"new"})
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_bytes() == b"old"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    message = f"{tmp_path / 'out'}: cannot be written: {os.strerror(errno.EEXIST)}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        write_files(tmp_path / "out", {"one": b""})
