from __future__ import annotations

import webbrowser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gradpeel import Audit, Report, audit, report
from gradpeel.cli import main
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.files import write_files
from gradpeel.networks import mlp


def run(*options: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, options)])


@pytest.fixture(scope="module")
def page() -> Report:
    data: Dataset = load("digits")
    batch = draw_batch(data, 4)
    model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    found: Audit = audit(model, batch.x, batch.y)
    return report(found, data)


def test_a_page_that_was_lost_is_made_anew(page: Report, tmp_path: Path) -> None:
    write_files(tmp_path, page.files())
    (tmp_path / "report.html").unlink()
    finished = run(tmp_path)
    assert (finished.exit_code, finished.stdout) == (0, "")
    assert finished.stderr == f"wrote {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page.html


def test_samples_can_be_left_out_later(page: Report, tmp_path: Path) -> None:
    write_files(tmp_path, page.files())
    assert run(tmp_path, "--no-samples").exit_code == 0
    assert "data:image" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_demo_has_a_page_for_each_audit(page: Report, tmp_path: Path) -> None:
    for name in ("digits", "photos"):
        write_files(tmp_path / name, {"report.json": page.files()["report.json"]})
    finished = run(tmp_path)
    assert finished.stderr.count("wrote ") == 2
    assert len(list(tmp_path.glob("*/report.html"))) == 2


def test_open_shows_the_page(page: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    write_files(tmp_path, page.files())
    assert run(tmp_path, "--open").exit_code == 0
    assert asked == [(tmp_path / "report.html").as_uri()]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "no report.json: expected a directory that an audit wrote"),
        (b"{", "report.json: not JSON: expected what an audit wrote"),
        (b"{}", "report.json: version=None: expected 5, the"),
    ],
)
def test_what_cannot_be_read_is_told_and_nothing_written(
    content: bytes | None, line: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "report.json").write_bytes(content)
    finished = run(tmp_path)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.stderr.startswith("error: ")
    assert line in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_no_such_directory() -> None:
    finished = run("nowhere")
    assert finished.exit_code == 2
    assert finished.stderr.startswith("error: nowhere: no report.json: expected")
