"""The fixture that people use in tests of their own, in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import gradpeel
from gradpeel.cli import main

ROOT = Path(__file__).resolve().parents[1]
SOURCE = str(Path(gradpeel.__file__).parents[1])
OPTIONS = ["-p", "gradpeel.pytest_plugin", "-p", "no:cacheprovider", "-q"]
HEAD = """
import sys, numpy as np
import pytest
@pytest.fixture
def network():
    from gradpeel.networks import mlp
    return mlp(30, 2, (200,), rng=np.random.default_rng(0))
@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.random((8, 30)), np.arange(8) % 2
"""


def run(folder: Path, tests: str, *, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(head + tests, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    # Whether or not this environment has the plugin registered, it is loaded once.
    env = {"PYTHONPATH": SOURCE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"gradpeel": "gradpeel.pytest_plugin"}


@pytest.mark.slow
def test_it_fails_where_more_leaks_than_a_budget_allows(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
def test_leaks(leakage, network, batch):
    leakage(network, *batch, max_readable=0.05)
def test_predicted(leakage, network, batch):
    leakage(network, batch[0], max_readable=0.05, decode=False)
def test_members(leakage, network, batch):
    leakage(network, *batch, max_readable=1.0, max_members=0.0)
def test_holds(leakage, network, batch):
    import gradpeel as gp
    found = leakage(network, *batch, max_members=0.0, client=gp.Client(noise=10.0))
    assert (found.readable, found.members) == (0, 0)
def test_refused(leakage, batch):
    from torch import nn
    leakage(nn.Linear(30, 2), *batch, max_readable=1.0)
""",
    )
    assert found.returncode == 1
    assert "4 failed, 1 passed" in found.stdout
    assert "8 of 8 records can be read: max_readable=0.05 allows 0" in found.stdout
    assert "8 of 8 records would be read by peeling" in found.stdout
    assert "8 of 8 records can be shown to have taken part" in found.stdout
    assert "leakage could not be checked: the model cannot be audited" in found.stdout


def test_torch_is_not_loaded_before_a_test_needs_it(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
import sys
def test_nothing_is_loaded(leakage):
    assert "gradpeel.pytest_plugin" in sys.modules
    assert not {"torch", "numpy"} & set(sys.modules)
""",
        head="",
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_the_page_shows_a_test_that_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "audit-in-ci.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_project.py").write_text(
        """
import numpy as np
from gradpeel.datasets import draw_batch, load
from gradpeel.networks import mlp
def make_model():
    return mlp(64, 10, (300,), rng=np.random.default_rng(0), sample_shape=(8, 8))
def sample_batch(size):
    drawn = draw_batch(load("digits"), size)
    return drawn.x, drawn.y
""",
        encoding="utf-8",
    )
    found = run(tmp_path, code, head="")
    assert "1 failed" in found.stdout
    assert re.search(r"\d+ of 64 records can be read: max_readable=0.05 allows 3", found.stdout)


def test_commands_on_the_page_have_options_that_exist() -> None:
    page = (ROOT / "docs" / "audit-in-ci.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(main)
    known = {opt for option in group.commands["check"].params for opt in option.opts}
    used = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", page))
    assert "--sarif" in used <= known
