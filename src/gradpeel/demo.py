"""Three audits to begin with: a photograph, scans and patients, all from untouched networks.

Everything runs on data that comes with gradpeel. The server is passive each time: it sends a
network as the paper initialises it (section "Experiments") and reads the answer.

Example:
    >>> runs = run_demo(Path("gradpeel-demo"), on_progress=print)  # doctest: +SKIP
    photos: one gradient of 260 samples, from an untouched network ...
    photos: 260 of 260 samples recovered in 19 rounds, 23 of them directly
    ...
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.files import write_files
from gradpeel.networks import mlp
from gradpeel.reporting import save_figures
from gradpeel.reporting.page import report
from gradpeel.reporting.words import counted

__all__ = ["FOLDERS", "Demonstration", "run_demo"]


class Demonstration(NamedTuple):
    """One of the audits, the data it ran on, and the files it left."""

    audit: Audit
    dataset: Dataset
    files: list[Path]


@dataclass(frozen=True)
class _Case:
    data: str
    batch_size: int
    neurons: int


_CASES = (
    _Case("photos", batch_size=260, neurons=2000),
    _Case("digits", batch_size=64, neurons=1000),
    _Case("breast_cancer", batch_size=128, neurons=1000),
)


FOLDERS = tuple(case.data for case in _CASES)
"""What a demo leaves in its directory."""


def run_demo(
    out: Path,
    seed: int = 0,
    on_progress: Callable[[str], None] | None = None,
    *,
    on_result: Callable[[Demonstration], None] | None = None,
    samples: bool = True,
) -> list[Demonstration]:
    """Audit the three embedded data sets and leave report, figures and numbers of each.

    Args:
        out: a directory, made if need be; each audit writes into a folder named after its data.
        seed: seeds the networks; the same seed gives the same result.
        on_progress: called with a line of text before and after each audit.
        on_result: called with each audit after its line of text.
        samples: whether reports and figures show samples.

    Returns:
        The audits, in the order they ran.

    Raises:
        InputError: the directory cannot be written to.
    """
    say = on_progress or (lambda _: None)
    write_files(out, {})  # a directory that cannot be written to is reported before the work
    runs = []
    for case in _CASES:
        runs.append(_run(case, out / case.data, seed, say, samples=samples))
        if on_result is not None:
            on_result(runs[-1])
    return runs


def _run(
    case: _Case, out: Path, seed: int, say: Callable[[str], None], *, samples: bool
) -> Demonstration:
    say(f"{case.data}: one gradient of {case.batch_size} samples, from an untouched network ...")
    dataset = load(case.data)
    batch = draw_batch(dataset, case.batch_size)
    model = mlp(
        dataset.features,
        dataset.classes,
        hidden=(case.neurons,),
        rng=np.random.default_rng([seed, 0]),
        sample_shape=dataset.sample_shape,
    )
    found = audit(
        model, batch.x, batch.y, attacker=Attacker(data_range=dataset.data_range), seed=seed
    )
    numbers = json.dumps({"data": case.data, **found.as_dict()}, indent=2, allow_nan=False)
    page = report(
        found,
        dataset,
        samples=samples,
        command=f"gradpeel demo --seed {seed}",
        weights="newly initialised",
    )
    files = save_figures(found, dataset, out, samples=samples)
    files += write_files(out, {**page.files(), "result.json": f"{numbers}\n".encode()})
    say(f"{case.data}: {_result(found)}")
    return Demonstration(found, dataset, files)


def _result(found: Audit) -> str:
    score = found.score
    recovered = f"{score.recovered} of {score.batch_size} samples recovered"
    rounds = counted(found.recovery.cascade_length, "round")
    directly = round(score.baseline_rate * score.batch_size)
    false = score.false_certificates
    wrong = f"; {counted(false, 'false certificate')}" if false else ""
    return f"{recovered} in {rounds}, {directly} of them directly{wrong}"
