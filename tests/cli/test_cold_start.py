"""What a command loads: nothing that it does not use, and nothing slow before it has to."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gradpeel

SLOW = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "jinja2", "PIL", "ray", "pyarrow"}
# Older releases of torch load sympy by themselves.
UNUSED = SLOW - {"torch", "numpy"} | {"torch._dynamo", "torch._inductor", "pandas"}
HELP = [
    [*words, "--help"]
    for words in (
        [],
        ["audit"],
        ["check"],
        ["peel"],
        ["demo"],
        ["report"],
        ["sweep"],
        ["paper"],
        ["paper", "table1"],
        ["paper", "figures"],
    )
]
PROBE = """
import json, sys
def run(*argv):
    from gradpeel.cli import main
    try:
        main(argv)
    except SystemExit as end:
        return end.code
code = {code}
json.dump([code, sorted(sys.modules)], open(sys.argv[-1], "w"))
"""


def loaded(code: str, folder: Path) -> tuple[object, set[str]]:
    """The value of an expression in a fresh interpreter, and what has been imported then."""
    listed = folder / "modules.json"
    command = [sys.executable, "-c", PROBE.format(code=code), str(listed)]
    source = str(Path(gradpeel.__file__).parents[1])
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONPATH": source}, cwd=folder)
    value, modules = json.loads(listed.read_text(encoding="utf-8"))
    return value, set(modules)


def after(argvs: list[list[str]], folder: Path) -> tuple[object, set[str]]:
    """The exit codes of commands, run one after the other, and what they have imported."""
    return loaded(f"[run(*argv) for argv in {argvs!r}]", folder)


def test_importing_the_package_loads_nothing_else(tmp_path: Path) -> None:
    version, modules = loaded("__import__('gradpeel').__version__", tmp_path)
    assert version == gradpeel.__version__
    assert not modules & (SLOW | {"typer", "rich"})


@pytest.mark.slow
def test_help_and_the_version_wait_for_nothing(tmp_path: Path) -> None:
    codes, modules = after([["--version"], *HELP], tmp_path)
    assert codes == [0] * (1 + len(HELP))
    assert not modules & SLOW


@pytest.mark.slow
def test_a_wrong_option_is_reported_at_once(tmp_path: Path) -> None:
    digits = ["audit", "--data", "digits"]
    wrong = [
        ["audit"],
        [*digits, "--batch", "64"],
        [*digits, "--dtype", "float8"],
        [*digits, "--scale", "0.5"],
        [*digits, "--tail", "a,b"],
        ["peel"],
        ["sweep", "plan.toml"],
        ["paper", "table2"],
    ]
    codes, modules = after(wrong, tmp_path)
    assert codes == [2] * len(wrong)
    assert not modules & SLOW


@pytest.mark.slow
def test_wrong_data_is_reported_before_torch_is_loaded(tmp_path: Path) -> None:
    wrong = [
        ["audit", "--data", "digitts"],
        ["audit", "--data", "missing.npz"],
        ["audit", "--data", "digits", "--batch-size", "5000"],
    ]
    codes, modules = after(wrong, tmp_path)
    assert codes == [2, 2, 2]
    assert not modules & (SLOW - {"numpy"})


@pytest.mark.parametrize(
    "more",
    [[], pytest.param(["--tail", "32", "--dtype", "float32"], marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_an_audit_loads_no_compiler_and_nothing_for_pages_or_sweeps(
    more: list[str], tmp_path: Path
) -> None:
    argv = ["audit", "--data", "digits", "--batch-size", "4", "--neurons", "100", *more]
    codes, modules = after([argv], tmp_path)
    assert codes == [0]
    assert "torch" in modules, "the probe must notice what is imported"
    assert not modules & UNUSED


@pytest.mark.slow
def test_a_page_without_figures_loads_no_matplotlib(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        "import gradpeel as gp\n"
        "from gradpeel.datasets import draw_batch, load\n"
        "from torch import nn\n"
        "data = load('digits')\n"
        "batch = draw_batch(data, 4)\n"
        "net = nn.Sequential(nn.Flatten(), nn.Linear(64, 99), nn.ReLU(), nn.Linear(99, 10))\n"
        "gp.report(gp.audit(net, batch.x, batch.y), data).save('page.html')\n",
        encoding="utf-8",
    )
    value, modules = loaded("exec(open('page.py').read())", tmp_path)
    assert value is None
    assert (tmp_path / "page.html").exists()
    assert not modules & {"matplotlib", "scipy", "torch._dynamo", "sympy"}


@pytest.mark.parametrize("name", ["gradpeel", "gradpeel.designs", "gradpeel.reporting"])
def test_every_promised_name_is_there(name: str) -> None:
    package = import_module(name)
    assert set(package.__all__) <= set(dir(package))
    for promised in package.__all__:
        assert getattr(package, promised) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gradpeel' has no attribute 'adit'$"):
        gradpeel.adit  # type: ignore[attr-defined]  # noqa: B018


def test_functions_keep_their_names_when_their_modules_are_imported() -> None:
    for module in ("gradpeel.audit", "gradpeel.exposure", "gradpeel.reporting.page.report"):
        import_module(module)
    functions = (gradpeel.audit, gradpeel.exposure, gradpeel.report)
    assert all(inspect.isfunction(function) for function in functions)
