"""The command line in this process, through the object the console script calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradpeel.cli import main


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        def refuse(word: str) -> float:
            raise AssertionError(f"{word} is not JSON")

        numbers: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        return numbers


Run = Callable[..., Finished]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_(*argv: str | Path) -> Finished:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in argv])
        code = stop.value.code
        assert isinstance(code, int)
        return Finished(code, *capsys.readouterr())

    return run_


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tiny(folder: Path) -> Path:
    """A data set of 24 + 12 samples with 6 features in 3 classes, in the working directory."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    x_train, x_test = rng.random((24, 6)), rng.random((12, 6))
    np.savez(folder / "tiny.npz", x_train=x_train, y_train=y, x_test=x_test, y_test=y[:12])
    return folder / "tiny.npz"
