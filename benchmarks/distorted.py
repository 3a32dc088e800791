"""Drawn batches under drawn defences: is anything certified that is false?

    python -m benchmarks.distorted [--trials 1500] [--out docs/distorted.csv]
        [--markdown docs/distorted-table.md]

Batches of uniform, Gaussian and binary data, of few directions, of near-twins and of one class, in
networks of drawn widths and dtypes, with the gradient of a batch or several local steps, under one
defence each or two. The exit code is 1 if a certificate is false.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import run
from benchmarks.command import show
from gradpeel.defences import parse

DEFENCES = (
    *("dp:{size},0", "dp:{size},{tiny}", "dp:{size},{noise}", "clip:{size}", "guard:0.2"),
    *("relative-noise:{tiny}", "relative-noise:{noise}", "noise:{tiny}", "top-k:{share}"),
    *("sign", "int8", "bfloat16", "float16"),
)
KINDS = ("uniform", "gaussian", "binary", "few directions", "twins", "one class")


@dataclass(frozen=True)
class Trial:
    """A batch and a defence, drawn by a number."""

    number: int


@dataclass(frozen=True)
class Row:
    """What was certified of it."""

    number: int
    kind: str
    defence: str
    dtype: str
    steps: int
    batch_size: int
    certified: int
    readable: int
    false: int
    rough: int

    @property
    def cell(self) -> Trial:
        """What this is the measurement of."""
        return Trial(self.number)

    def __str__(self) -> str:
        return f"{self.number} {self.kind} {self.defence}: {self.certified}, {self.false} false"


def measure(trial: Trial) -> Row:
    """Draw and audit."""
    rng = np.random.default_rng([20, trial.number])
    kind = KINDS[rng.integers(len(KINDS))]
    names = rng.choice(len(DEFENCES), size=1 + int(rng.random() < 0.25), replace=False)
    values = {
        "size": f"{10 ** rng.uniform(-2, 0.5):.3g}",
        "tiny": f"{10 ** rng.uniform(-9, -4):.3g}",
        "noise": f"{10 ** rng.uniform(-4, 0):.3g}",
        "share": f"{rng.uniform(0.05, 0.999):.3g}",
    }
    # Samples are clipped before anything else happens.
    chosen = sorted((DEFENCES[n] for n in names), key=lambda name: not name.startswith("dp"))
    chosen = chosen[:1] if all(name.startswith("dp") for name in chosen) else chosen
    defence = "+".join(chosen).format(**values)
    features, size = int(rng.integers(20, 80)), int(rng.integers(2, 24))
    dtype = torch.float64 if rng.random() < 0.6 else torch.float32
    steps = 0 if rng.random() < 0.8 else int(rng.integers(2, 5))
    torch.manual_seed(trial.number)
    width = int(rng.integers(60, 220))
    network = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 4)).to(dtype)
    x = _batch(kind, size, features, rng)
    y = torch.from_numpy(rng.integers(4, size=size) * (kind != "one class"))
    client = gp.Client(
        defences=parse(defence), lr=0.05 if steps else None, local_steps=steps or None
    )
    attacker = gp.Attacker(knows_batch_size=bool(rng.random() < 0.8))
    found = gp.audit(network, x.to(dtype), y, client=client, attacker=attacker, seed=trial.number)
    return Row(
        trial.number,
        kind,
        defence,
        str(dtype).removeprefix("torch."),
        steps,
        size,
        certified=found.score.recovered,
        readable=found.score.read,
        false=found.score.false_certificates,
        rough=found.score.inexact_certificates,
    )


def _batch(kind: str, size: int, features: int, rng: np.random.Generator) -> Tensor:
    x = rng.random((size, features))
    if kind == "gaussian":
        x = rng.standard_normal((size, features))
    if kind == "binary":
        x = (x < 0.3).astype(float)
    if kind == "few directions":
        x = rng.standard_normal((size, 3)) @ rng.standard_normal((3, features))
    if kind == "twins":
        x[size // 2 :] = x[: size - size // 2] * (1 + 1e-3 * x[size // 2 :])
    return torch.from_numpy(x)


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """One line for each first defence."""
    by_first: dict[str, list[Row]] = {}
    for row in rows:
        first = row.defence.partition("+")[0].partition(":")[0]
        by_first.setdefault(first, []).append(row)
    for name, some in sorted(by_first.items()):
        yield [
            name,
            str(len(some)),
            f"{sum(row.batch_size for row in some):,}",
            str(sum(row.certified for row in some)),
            f"{sum(row.readable for row in some):,}",
            str(sum(row.false for row in some)),
            str(sum(row.rough for row in some)),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("distorted.csv"), help="is resumed")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    trials = [Trial(number) for number in range(given.trials)]
    rows = run(trials, measure, given.out, Row, workers=given.workers)
    false = sum(row.false for row in rows)
    certified = sum(row.certified for row in rows)
    finding = f"{len(rows):,} audits, {certified:,} certificates, {false} false"
    titles = ("first defence", "audits", "samples", "certified", "readable", "false", "rough")
    head = (
        "# Drawn defences: table\n\nWritten by `python -m benchmarks.distorted --out "
        f"docs/distorted.csv --markdown docs/distorted-table.md`. {finding}.\n\n"
    )
    show(titles, tabulate(rows), [finding], markdown=given.markdown, before=head)
    sys.exit(1 if false else 0)


if __name__ == "__main__":
    main()
