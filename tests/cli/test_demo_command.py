from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradpeel import demo
from gradpeel.cli import main
from gradpeel.demo import Demonstration

SEE = [
    "Report: gradpeel-demo/photos/report.html",
    "Others: gradpeel-demo/digits/report.html",
]


def test_the_demo_says_what_it_does_and_where_its_reports_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_demo(
        out: Path,
        *,
        seed: int,
        on_progress: Callable[[str], None],
        on_result: Callable[[Demonstration], None] | None,
        samples: bool,
    ) -> None:
        assert (on_result is None) == (not samples)
        on_progress(f"seed {seed}, {'with' if samples else 'without'} samples")
        for name in ("digits", "photos"):
            (out / name).mkdir()
            (out / name / "report.html").write_text("page")
        (out / "digits" / "result.json").write_text("{}")

    monkeypatch.setattr(demo, "run_demo", run_demo)
    monkeypatch.chdir(tmp_path)
    first = CliRunner().invoke(main, ["demo", "--seed", "3"])
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout.splitlines() == ["seed 3, with samples", *SEE]
    assert Path("gradpeel-demo/digits/result.json").is_file()

    (Path("gradpeel-demo") / "digits" / "old.png").touch()
    again = CliRunner().invoke(main, ["demo", "--seed", "4", "--no-samples"])
    assert again.exit_code == 0
    assert again.stdout.splitlines() == ["seed 4, without samples", *SEE]
    assert [path.name for path in Path.cwd().iterdir()] == ["gradpeel-demo"]

    (Path("gradpeel-demo") / "thesis.txt").touch()
    foreign = CliRunner().invoke(main, ["demo"])
    assert foreign.exit_code == 2
    line = "error: gradpeel-demo: holds files: expected a new or an empty directory\n"
    assert foreign.stderr == line


def test_open_shows_the_photograph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", asked.append)

    def run_demo(out: Path, **_: object) -> None:
        (out / "photos").mkdir()
        (out / "photos" / "report.html").write_text("page")

    monkeypatch.setattr(demo, "run_demo", run_demo)
    out = tmp_path / "demo"
    assert CliRunner().invoke(main, ["demo", "--open", "--out", str(out)]).exit_code == 0
    assert asked == [(out / "photos" / "report.html").as_uri()]


def test_a_demo_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_demo(out: Path, **_: object) -> None:
        (out / "samples.png").write_bytes(b"png")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", run_demo)
    finished = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")])
    assert (finished.exit_code, finished.stderr) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []
