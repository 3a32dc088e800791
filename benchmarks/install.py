"""What a newcomer waits for and stores: every install of the docs, and the command that follows it.

    python -m benchmarks.install
    python -m benchmarks.install --constraint .ci/constraints.txt

Each runs in a copy of the project, in a virtual environment of its own, with an empty home
directory and no data beside it. A constraint is handed to pip, for a CPU-only torch, say. What pip
finds in its cache is not downloaded again; `--no-cache` has it start from nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cells import markdown_table

__all__ = ["STEPS", "Measured", "Step", "main", "measure", "size_of"]

ROOT = Path(__file__).parents[1]
PASSED_ON = ("PATH", "TMPDIR", "LANG", "LC_ALL", "CI")
"""Variables of the environment that the commands see, besides those of pip."""


@dataclass(frozen=True)
class Step:
    """An install, and what is run after it.

    Attributes:
        name: what it is, in the table.
        install: arguments of pip install.
        command: a program of the virtual environment, and its arguments.
    """

    name: str
    install: tuple[str, ...]
    command: tuple[str, ...]


STEPS = (
    Step("demo", (".",), ("gradpeel", "demo")),
    Step(
        "fast tests",
        ("-e", ".[test-light]"),
        ("python", "-m", "pytest", "-q", "-n", "auto", "-m", "not slow"),
    ),
    Step("all tests", ("-e", ".[test]"), ("python", "-m", "pytest", "-q", "-n", "auto")),
)


@dataclass(frozen=True)
class Measured:
    """What a step took: seconds of both parts, and bytes of the virtual environment."""

    step: Step
    torch: str
    installing: float
    running: float
    size: int


def measure(step: Step, *, constraint: Path | None = None, cache: bool = True) -> Measured:
    """Install and run in a copy of the project.

    Args:
        step: what to install and run.
        constraint: a constraints file for pip.
        cache: whether pip may use its cache.

    Raises:
        SystemExit: a command fails; it says what the command wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy, home = Path(folder) / "place" / "project", Path(folder) / "home"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".[!c]*", "__pycache__"))
        home.mkdir()
        environment = _environment(home, constraint=constraint, cache=cache)
        programs = copy / ".venv" / "bin"
        started = time.perf_counter()
        _run([sys.executable, "-m", "venv", ".venv"], copy, environment)
        _run([programs / "pip", "install", "-q", *step.install], copy, environment)
        installed = time.perf_counter()
        _run([programs / step.command[0], *step.command[1:]], copy, environment)
        done = time.perf_counter()
        version = "from importlib.metadata import version; print(version('torch'))"
        return Measured(
            step,
            torch=_run([programs / "python", "-c", version], copy, environment).strip(),
            installing=installed - started,
            running=done - installed,
            size=size_of(copy / ".venv"),
        )


def _environment(home: Path, *, constraint: Path | None, cache: bool) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or (name.startswith("PIP_") and name != "PIP_CONSTRAINT")
    }
    pip = [sys.executable, "-m", "pip", "cache", "dir"]
    kept |= {"HOME": str(home), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if cache:
        kept["PIP_CACHE_DIR"] = subprocess.check_output(pip, text=True).strip()
    else:
        kept["PIP_NO_CACHE_DIR"] = "1"
    if constraint is not None:
        kept["PIP_CONSTRAINT"] = str(constraint.resolve())
    return kept


def _run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: failed\n{done.stdout}")
    return done.stdout


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def table(rows: Sequence[Measured]) -> str:
    """A line for each step."""
    return markdown_table(
        ["what", "torch", "install (min)", "run (min)", "size (GB)"],
        [
            [
                row.step.name,
                row.torch,
                f"{row.installing / 60:.1f}",
                f"{row.running / 60:.1f}",
                f"{row.size / 1e9:.1f}",
            ]
            for row in rows
        ],
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.install",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--constraint", type=Path)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--only", choices=[step.name for step in STEPS], nargs="+")
    given = parser.parse_args()
    chosen = [step for step in STEPS if given.only is None or step.name in given.only]
    rows = [measure(s, constraint=given.constraint, cache=not given.no_cache) for s in chosen]
    print(table(rows), end="")
    print(f"on {os.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
