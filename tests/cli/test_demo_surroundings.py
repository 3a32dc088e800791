"""The demo wherever a newcomer starts it: read-only, without UTF-8, without a display, twice."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gradpeel
from gradpeel import demo
from gradpeel.cli import main

# The real command in a process of its own, twice in a row, with one small audit.
SMALL = """
import sys
from gradpeel import cli, demo

demo._CASES = (demo._Case("digits", batch_size=8, neurons=200),)
for _ in range(2):
    sys.argv = ["gradpeel", "demo"]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
"""


def start(folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "HOME") if name in os.environ}
    source = str(Path(gradpeel.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", SMALL],
        cwd=folder,
        env=kept | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.slow
def test_without_display_and_utf_8_and_twice_in_a_row(tmp_path: Path) -> None:
    """PYTHONUTF8 and PYTHONCOERCECLOCALE keep Python from putting UTF-8 in place of the locale."""
    ascii_only = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    done = start(tmp_path, **ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode("ascii").splitlines()
    assert done.stdout.count(b"8 of 8 samples recovered") == 2
    assert len(lines) % 2 == 0
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert lines[-1] == "Report: gradpeel-demo/digits/report.html"
    # Nothing but what it says it writes.
    assert [path.name for path in tmp_path.iterdir()] == ["gradpeel-demo"]
    assert [path.name for path in (tmp_path / "gradpeel-demo").iterdir()] == ["digits"]
    page = (tmp_path / "gradpeel-demo/digits/report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that nobody can write to, root included."""
    folder, temporary = tmp_path / "clone", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    mkdir = os.mkdir

    def refusing(path: str, mode: int = 0o777) -> None:
        if Path(path).resolve().is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", refusing)
    return folder


def small_demo(out: Path, **_: object) -> None:
    (out / "digits").mkdir()
    (out / "digits" / "report.html").write_text("page")


def test_in_a_read_only_directory_it_says_where_it_writes_instead(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "run_demo", small_demo)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 0
    (elsewhere,) = (read_only.parent / "tmp").iterdir()
    assert done.stdout == f"Report: {elsewhere / 'digits' / 'report.html'}\n"
    why = f"gradpeel-demo: cannot be written here ({os.strerror(errno.EROFS)})"
    assert done.stderr.startswith(f"{why}; the demo goes to {elsewhere}")
    assert done.stderr.count("\n") == 1
    assert (elsewhere / "digits" / "report.html").read_text() == "page"
    assert elsewhere.stat().st_mode & 0o077 == 0
    assert not list(read_only.iterdir())


def test_a_read_only_place_that_was_asked_for_is_refused(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: pytest.fail("went on"))
    done = CliRunner().invoke(main, ["demo", "--out", "here"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: here: cannot be written: {os.strerror(errno.EROFS)}\n"
    assert not list((read_only.parent / "tmp").iterdir())


def test_interrupted_in_a_read_only_directory_it_leaves_nothing(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(out: Path, **_: object) -> None:
        (out / "samples.png").write_bytes(b"png")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    assert CliRunner().invoke(main, ["demo"]).exit_code == 130
    assert not list((read_only.parent / "tmp").iterdir())


@pytest.mark.usefixtures("read_only")
def test_an_empty_place_that_can_be_written_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of a container, say."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "clone" / "gradpeel-demo").symlink_to(tmp_path / "volume")
    monkeypatch.setattr(demo, "run_demo", small_demo)
    done = CliRunner().invoke(main, ["demo"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "volume" / "digits" / "report.html").read_text() == "page"
