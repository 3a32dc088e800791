"""What each defence stops, and what it costs.

    python -m benchmarks.defences --data-dir DIR [--out docs/defences.csv]
        [--accuracy docs/defences-accuracy.csv] [--markdown docs/defences-table.md]

*Leakage*: the gradient of a batch of 32, in a network of 400 neurons, float64, under each defence
and several servers, decoded with the row cascade. *Accuracy*: a network of 100 neurons trained for
300 steps on batches of 64 by a client that applies the defence in every step, against the same
without. The exit code is 1 if anything is certified wrongly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import nn

import gradpeel as gp
from benchmarks.cells import load_cached, read_rows, run
from benchmarks.command import arguments, show
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.defences import PerExampleClipping, parse
from gradpeel.designs import PAPER_METHODS, DesignName, DesignOptions, InitName
from gradpeel.networks import mlp

METHODS = {
    "passive, paper's start": PAPER_METHODS["Passive"],
    "passive, default start": DesignOptions(DesignName.PASSIVE, init=InitName.TORCH),
    "active, SD-Ind": PAPER_METHODS["SD-Ind"],
}
DATASETS = ("cifar10", "fashion_mnist", "harus")
DEFENCES = (
    "none",
    "standardise",
    "dropout",
    "batch x4",
    "dp:1,0",
    "dp:1,0.001",
    "dp:1,0.01",
    "dp:1,0.1",
    "dp:1,1",
    "clip:1",
    "noise:1e-06",
    "noise:0.0001",
    "relative-noise:1e-06",
    "relative-noise:0.0001",
    "relative-noise:0.01",
    "relative-noise:1",
    "top-k:0.5",
    "top-k:0.1",
    "top-k:0.01",
    "sign",
    "int8",
    "float16",
    "bfloat16",
    "guard",
)
TRAINED = (
    "none",
    "guard",
    "standardise",
    "dropout",
    "batch x4",
    "relative-noise:0.01",
    "relative-noise:1",
    "top-k:0.1",
    "top-k:0.01",
    "sign",
    "int8",
    "bfloat16",
    "dp:1,0.1",
    "dp:1,1",
)
"""Defences that networks are trained under: with less of them, accuracy is that without."""
SETTINGS = ("standardise", "dropout", "batch x4")
"""What is no change to an update, but a setting of the data, the network or the round."""
BATCH, NEURONS = 32, 400
SAMPLES = 2048
"""Training samples of each data set here, as far as privacy accounting is concerned."""
WIDTH, STEPS, TRAINING_BATCH, RATE, DELTA = 100, 300, 64, 0.1, 1e-5


@dataclass(frozen=True)
class Cell:
    """One audit under a defence."""

    dataset: str
    server: str
    defence: str
    effort: float
    seed: int


@dataclass(frozen=True)
class Row:
    """What it gave away."""

    dataset: str
    server: str
    defence: str
    effort: float
    seed: int
    samples: int
    certified: int
    readable: int
    members: int
    false: int
    rough: int
    seconds: float

    @property
    def cell(self) -> Cell:
        """What this is the measurement of."""
        return Cell(self.dataset, self.server, self.defence, self.effort, self.seed)

    def __str__(self) -> str:
        return (
            f"{self.cell}: {self.certified} certified, {self.readable} readable of {self.samples}"
        )


def measure(cell: Cell, data_dir: Path) -> Row:
    """Audit one batch."""
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    options = METHODS[cell.server]
    size = BATCH * (4 if cell.defence == "batch x4" else 1)
    batch = draw_batch(dataset, size, shuffle=True, rng=np.random.default_rng([cell.seed, 1]))
    x, auxiliary = batch.x, batch.auxiliary
    if cell.defence == "standardise":
        mean, deviation = _statistics(dataset)
        x, auxiliary = ((values - mean) / deviation for values in (x, auxiliary))
    model = _network(dataset, options, cell.seed, NEURONS)
    if cell.defence == "dropout":
        model.insert(len(model) - 1, nn.Dropout(0.5))
    chosen = () if cell.defence in SETTINGS else parse(cell.defence)
    found = gp.audit(
        model,
        x,
        batch.y,
        client=gp.Client(defences=chosen),
        attacker=gp.Attacker(options.build(auxiliary), effort=cell.effort),
        seed=cell.seed,
    )
    return Row(
        *(cell.dataset, cell.server, cell.defence, cell.effort, cell.seed),
        samples=size,
        certified=found.score.recovered,
        readable=found.score.read,
        members=0 if found.refuses_membership else found.membership.count("in"),
        false=found.score.false_certificates,
        rough=found.score.inexact_certificates,
        seconds=found.seconds,
    )


def _statistics(dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(dataset.x_train)
    return x.mean(0), x.std(0).clamp(min=0.01)


def _network(dataset: Dataset, options: DesignOptions, seed: int, neurons: int) -> nn.Sequential:
    return mlp(
        dataset.features,
        dataset.classes,
        (neurons,),
        rng=np.random.default_rng([seed, 0]),
        init=options.network_init.value,
        sample_shape=dataset.sample_shape,
    )


@dataclass(frozen=True)
class Training:
    """One training under a defence."""

    dataset: str
    defence: str
    seed: int


@dataclass(frozen=True)
class Accuracy:
    """What it reached."""

    dataset: str
    defence: str
    seed: int
    accuracy: float

    @property
    def cell(self) -> Training:
        """What this is the measurement of."""
        return Training(self.dataset, self.defence, self.seed)

    def __str__(self) -> str:
        return f"{self.cell}: {self.accuracy:.3f}"


def train(cell: Training, data_dir: Path) -> Accuracy:
    """Train a network, and measure its accuracy on the test split."""
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    x, y = torch.from_numpy(dataset.x_train).float(), torch.from_numpy(dataset.y_train)
    test = torch.from_numpy(dataset.x_test).float()
    if cell.defence == "standardise":
        mean, deviation = (values.float() for values in _statistics(dataset))
        x, test = (x - mean) / deviation, (test - mean) / deviation
    model = _network(dataset, METHODS["passive, default start"], cell.seed, WIDTH).float()
    if cell.defence == "dropout":
        model.insert(len(model) - 1, nn.Dropout(0.5))
    size = TRAINING_BATCH * (4 if cell.defence == "batch x4" else 1)
    client = gp.Client(defences=() if cell.defence in SETTINGS else parse(cell.defence))
    rng = np.random.default_rng([cell.seed, 2])
    for step in range(STEPS):
        chosen = torch.from_numpy(rng.choice(len(x), size, replace=False))
        update = gp.local_update(model, x[chosen], y[chosen], client, seed=step)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(RATE * update.gradients[name].to(parameter.dtype))
    model.eval()
    with torch.no_grad():
        guesses = model(test).argmax(1)
    right = float((guesses == torch.from_numpy(dataset.y_test)).double().mean())
    return Accuracy(cell.dataset, cell.defence, cell.seed, right)


def promise(defence: str, samples: int) -> str:
    """Epsilon of one update, and of the training, where there is one."""
    found = () if defence in SETTINGS else parse(defence)
    if not found or not isinstance(found[0], PerExampleClipping) or not found[0].noise:
        return "-"
    one = found[0].epsilon(DELTA)
    run = found[0].epsilon(DELTA, steps=STEPS, sample_rate=TRAINING_BATCH / samples)
    return f"{_number(one)} / {_number(run)}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def tabulate(rows: list[Row], reached: list[Accuracy]) -> Iterator[list[str]]:
    """One line for each defence: shares of all samples, per server."""
    for defence in DEFENCES:
        line = [defence]
        for server in METHODS:
            some = [row for row in rows if (row.defence, row.server) == (defence, server)]
            if not some:
                line.append("-")
                continue
            total = sum(row.samples for row in some)
            shares = [
                f"{sum(getattr(row, name) for row in some) / total:.2f}"
                for name in ("certified", "readable", "members")
            ]
            line.append(" / ".join(shares))
        line.append(str(sum(row.false for row in rows if row.defence == defence)))
        line += [_accuracy(reached, dataset, defence) for dataset in DATASETS]
        line.append(promise(defence, SAMPLES))
        yield line


def _accuracy(reached: list[Accuracy], dataset: str, defence: str) -> str:
    """The mean over the trainings, and its difference from those of the same seeds without."""
    found, plain = (
        {
            one.seed: 100 * one.accuracy
            for one in reached
            if (one.dataset, one.defence) == (dataset, name)
        }
        for name in (defence, "none")
    )
    if not found:
        return "-"
    mean = f"{fmean(found.values()):.1f}"
    if defence == "none":
        return mean
    differences = [found[seed] - plain[seed] for seed in found if seed in plain]
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
    return f"{mean} ({fmean(differences):+.1f} ± {error:.1f})"


def main() -> None:
    parser = arguments(__doc__, out="defences.csv")
    parser.add_argument("--accuracy", type=Path, default=Path("defences-accuracy.csv"))
    parser.add_argument("--datasets", default=",".join(DATASETS), help="to train on")
    parser.add_argument("--audited", default="fashion_mnist", help="to audit")
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trainings", type=int, default=10, help="seeds of the trainings")
    parser.add_argument("--trained", nargs="+", default=TRAINED, help="defences to train under")
    parser.add_argument("--tables", action="store_true", help="only of what the files hold")
    given = parser.parse_args()
    names = given.datasets.split(",")
    trainings = [
        Training(name, defence, seed)
        for seed in range(given.trainings)
        for defence in given.trained
        for name in names
    ]
    cells = [
        Cell(name, server, defence, given.effort, seed)
        for seed in range(given.seeds)
        for defence in DEFENCES
        for name in given.audited.split(",")
        for server in METHODS
    ]
    if given.tables:
        reached = list(read_rows(given.accuracy, Accuracy))
        rows = list(read_rows(given.out, Row))
    else:
        reached = run(
            trainings,
            partial(train, data_dir=given.data_dir),
            given.accuracy,
            Accuracy,
            workers=given.workers,
        )
        audit_one = partial(measure, data_dir=given.data_dir)
        rows = run(cells, audit_one, given.out, Row, workers=given.workers)
    titles = (
        "defence",
        *(f"{server}: certified / readable / members" for server in METHODS),
        "false",
        *(f"accuracy, {name} (%)" for name in DATASETS),
        "epsilon of one update / of the training",
    )
    false = sum(row.false for row in rows)
    finding = f"{len(rows)} audits, {false} false certificates"
    audited = ", ".join(dict.fromkeys(row.dataset for row in rows))
    head = HEAD.format(audited=audited, finding=finding)
    show(titles, tabulate(rows, reached), [finding], markdown=given.markdown, before=head)
    sys.exit(1 if false else 0)


HEAD = (
    "# Defences: table\n\nWritten by `python -m benchmarks.defences --data-dir DATA --out "
    "docs/defences.csv --accuracy docs/defences-accuracy.csv --markdown docs/defences-table.md`. "
    f"Batches of {BATCH} in a network of {NEURONS} neurons; shares of the samples. "
    f"Audited: {{audited}}; {{finding}}. Accuracy after {STEPS} steps in a network of {WIDTH} "
    "neurons: the mean over ten seeds, and in parentheses the difference from training "
    "without a defence from the same seeds, with its standard error.\n\n"
)


if __name__ == "__main__":
    main()
