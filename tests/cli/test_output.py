from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradpeel.cli.output import private_directory, to_json
from gradpeel.errors import InputError


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Nothing but our own care keeps files private."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fill(folder: Path) -> None:
    (folder / "result.json").write_text("{}")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "one.png").write_bytes(b"png")


@pytest.mark.parametrize("out", ["new", "missing/parents/new", "empty", "link", "."])
def test_what_the_block_wrote_appears_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    home = tmp_path / "home"
    (home if out == "." else home / "empty").mkdir(parents=True)
    if out == "link":
        (home / "link").symlink_to("empty")
    monkeypatch.chdir(home)
    path = Path(out)
    with private_directory(path) as folder:
        assert mode(folder) == 0o700
        fill(folder)
        assert not (path / "result.json").exists()
    assert sorted(entry.name for entry in path.rglob("*")) == ["one.png", "pictures", "result.json"]
    assert mode(path) == mode(path / "pictures") == 0o700
    assert mode(path / "result.json") == mode(path / "pictures" / "one.png") == 0o600
    assert not list(home.glob(".gradpeel-*"))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("out", ["new", "missing/parents/new", "empty"])
def test_after_an_error_nothing_is_left(
    tmp_path: Path, out: str, error: type[BaseException]
) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)

    def fail() -> None:
        with private_directory(tmp_path / out) as folder:
            fill(folder)
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]
    assert mode(tmp_path / "empty") == 0o755


def test_what_stands_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    for name, rule in [("full", "holds files"), ("file", "is a file"), ("dangling", "is a file")]:
        match = f"{name}: {rule}: expected a new or an empty directory"
        with pytest.raises(InputError, match=match), private_directory(tmp_path / name):
            raise AssertionError("the block must not run")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_made_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "new"

    def write() -> None:
        with private_directory(path) as folder:
            fill(folder)
            path.mkdir()
            (path / "theirs").write_text("theirs")

    with pytest.raises(OSError, match="new"):
        write()
    assert [entry.name for entry in tmp_path.rglob("*")] == ["new", "theirs"]


def test_json_has_no_nan_at_any_depth() -> None:
    nan, inf = float("nan"), float("inf")
    text = to_json({"a": nan, "b": [1.5, -inf, {"c": inf}], "d": None, "e": True, "f": (1, nan)})
    assert json.loads(text) == {
        "a": None,
        "b": [1.5, None, {"c": None}],
        "d": None,
        "e": True,
        "f": [1, None],
    }
    assert "\n" not in text
