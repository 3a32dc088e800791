"""The measurement of an install, on one that takes no time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import install
from benchmarks.install import STEPS, Measured, size_of, table

ROOT = Path(__file__).parents[2]


def test_size_counts_every_file_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(bytes(1000))
    (tmp_path / "two").write_bytes(bytes(24))
    alone = size_of(tmp_path)
    assert alone == 1024
    (tmp_path / "link").symlink_to(tmp_path / "a" / "one")
    assert alone < size_of(tmp_path) < alone + 1000


def test_the_table_is_in_minutes_and_gigabytes() -> None:
    row = Measured(STEPS[0], torch="2.13.0", installing=90.0, running=6.0, size=2_040_000_000)
    assert "| demo | 2.13.0 | 1.5 | 0.1 | 2.0 |" in table([row])


def test_steps_are_what_the_documents_say() -> None:
    """The README's two commands, and that of the fast tests."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text += (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    printed = [
        [word.strip("'\"") for word in re.findall(r"'[^']*'|\"[^\"]*\"|\S+", line)]
        for line in text.splitlines()
        if line.startswith("python3 -m venv .venv && ")
    ]
    for step in STEPS:
        command = [word for word in step.command if word != "-q"]
        line = ["python3", "-m", "venv", ".venv", "&&", ".venv/bin/pip", "install", *step.install]
        assert [*line, "&&", f".venv/bin/{command[0]}", *command[1:]] in printed


def test_a_command_that_fails_is_shown_with_what_it_wrote(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)^ls .*nowhere: failed\n.*nowhere"):
        install._run(["ls", tmp_path / "nowhere"], tmp_path, {"PATH": "/bin:/usr/bin"})


def test_the_environment_has_a_home_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADPEEL_DATA", "/data")
    monkeypatch.setenv("PIP_CONSTRAINT", "/other.txt")
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    seen = install._environment(tmp_path, constraint=None, cache=False)
    assert seen["HOME"] == str(tmp_path)
    assert "GRADPEEL_DATA" not in seen
    assert "PIP_CONSTRAINT" not in seen
    assert "PIP_CACHE_DIR" not in seen
    monkeypatch.chdir(tmp_path)
    other = install._environment(tmp_path, constraint=Path("mine.txt"), cache=False)
    assert other["PIP_CONSTRAINT"] == str(tmp_path / "mine.txt")
