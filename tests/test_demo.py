from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from gradpeel import demo
from gradpeel.demo import run_demo
from gradpeel.errors import InputError

FILES = [
    "samples.png",
    "samples.svg",
    "activation_grid.png",
    "activation_grid.svg",
    "report.html",
    "report.json",
    "result.json",
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (demo._Case("digits", 8, 200), demo._Case("breast_cancer", 8, 200))
    monkeypatch.setattr(demo, "_CASES", cases)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_every_audit_leaves_figures_and_numbers(tmp_path: Path) -> None:
    lines: list[str] = []
    runs = run_demo(tmp_path / "out", seed=0, on_progress=lines.append)
    assert [run.dataset.name for run in runs] == ["digits", "breast_cancer"]
    written = sorted(path for run in runs for path in run.files)
    assert written == sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    for found, dataset, files in runs:
        assert [path.name for path in files] == FILES
        numbers = json.loads(files[-1].read_text())
        assert numbers["data"] == dataset.name
        assert numbers["recovered"] == found.score.recovered == 8
        assert not found.design.active
    assert len(lines) == 4
    assert lines[1].startswith("digits: 8 of 8 samples recovered in ")


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_samples_can_be_left_out(tmp_path: Path) -> None:
    runs = run_demo(tmp_path / "out", samples=False)
    for run in runs:
        assert [path.name for path in run.files] == FILES[2:]
        page = json.loads((run.files[0].parent / "report.json").read_text())
        assert not page["with_samples"]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_same_seed_gives_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_CASES", demo._CASES[:1])
    grids = [
        run_demo(tmp_path / name, seed=seed)[0].files[2].read_bytes()
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    ]
    assert grids[0] == grids[1]
    assert grids[0] != grids[2]


def test_a_directory_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("")
    with pytest.raises(InputError, match=f"^{re.escape(str(out))}: cannot be written"):
        run_demo(out, on_progress=lambda line: pytest.fail(f"went on to {line!r}"))


@pytest.mark.slow
def test_newcomers_see_every_sample_rebuilt(tmp_path: Path) -> None:
    runs = run_demo(tmp_path)
    assert [run.audit.score.recovered for run in runs] == [260, 64, 128]
    for run in runs:
        assert run.audit.score.false_certificates == 0
        assert run.audit.score.label_accuracy == 1
        for path in run.files:
            assert path.stat().st_size < 1_000_000
            if path.suffix == ".png":
                with Image.open(path) as image:
                    image.verify()
