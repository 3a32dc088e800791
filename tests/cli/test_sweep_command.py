from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gradpeel.cli import main

PLAN = (
    'datasets = ["digits"]\ndesigns = ["passive"]\nbatch_sizes = [8]\nneurons = [60]\nseeds = 2\n'
)


def _sweep(*options: str | Path) -> Result:
    return CliRunner().invoke(main, ["sweep", *map(str, options)])


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.slow
def test_a_plan_runs_and_is_gone_on_with(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = _sweep(plan, "--out", out, "--workers", "1", "--parquet")
    assert first.exit_code == 0, first.output
    assert "2 audits measured, 0 false certificates" in first.stdout
    assert "passive server" in first.stdout
    assert "2/2 digits Passive B=8 N=60 seed" in first.stderr
    *_, page_line, others = first.stderr.splitlines()
    assert page_line == f"Report: {out / 'report.html'}"
    names = "manifest.json, results.csv, results.parquet, timings.csv"
    assert others == f"Also in {out}: {names}"
    assert first.stdout.startswith("A passive server recovers every sample of batches of up to 8")
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    rebuilt = CliRunner().invoke(main, ["report", str(out)])
    assert rebuilt.exit_code == 0, rebuilt.output
    assert (out / "report.html").read_bytes() == page
    again = _sweep(plan, "--out", out, "--quiet")
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert again.stderr == ""
    assert "\x1b" not in first.output
    assert json.loads((out / "manifest.json").read_text())["cells"]["measured"] == 2


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("seeds", "sedes", [], "plan.toml, line 5: sedes: unknown key: did you mean seeds?"),
        ('"digits"', '"digit"', [], "plan.toml, line 1: datasets='digit': "),
        ("[8]", "[]", [], "plan.toml, line 3: batch_sizes=[]: expected at least one"),
        ("[8]", "[8, 1201]", [], "line 3: batch_sizes=1201: digits has 1200 training samples"),
        ('["digits"]', '["harus"]', ["--data-dir", "."], "line 1: datasets='harus': not in "),
        ("", "", ["--address", "auto"], "address='auto': engine local has no address; ray has"),
    ],
)
def test_bad_plans_fail_before_any_work(
    old: str, new: str, options: list[str], message: str, plan: Path
) -> None:
    plan.write_text(PLAN.replace(old, new))
    out = plan.parent / "out"
    result = _sweep(plan, "--out", out, *options)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()
