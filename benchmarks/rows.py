"""How far the row cascade reads batches of an untouched network, beside the peeling bound.

    python -m benchmarks.rows --data-dir DIR --out rows.csv --markdown rows-table.md
    python -m benchmarks.rows --data-dir DIR --suite limits --out limits.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. The suites:

- goals: batches of 64 and 128 on 1,000 neurons, all data sets, the paper's and PyTorch's start,
  inputs in [0, 1] and standardised, float64 and float32;
- large: batches of 256 on 1,000 neurons, and of 512 on 4,096;
- narrow: layers of 200, 400 and 2,000 neurons on Tiny-ImageNet, where earlier work on exact
  inversion (SPEAR) reports batches of up to 25;
- limits: batch size against width and number of classes; training, noise, deeper tails and nothing
  known of the tail;
- rounds: batches of 64 after local training (FedAvg): 5 and 20 steps, one epoch and five in
  minibatches of 16, at learning rates of 0.01 and 0.1.

Rows are appended as they come, so an interrupted run resumes; give every version of the code a file
of its own. The exit code is 1 if anything that was certified is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached, markdown_table, run
from gradpeel.datasets.standard import STANDARD
from gradpeel.gradients import gradients
from gradpeel.networks import mlp

STARTS = ("torch", "paper")
SCALINGS = ("standardised", "unit")
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
"""Batch sizes, relative to the number of neurons, at which limits are looked for."""
TITLES = (
    "data",
    "inputs",
    "start",
    "setting",
    "dtype",
    "N",
    "B",
    "batches",
    "peeling bound",
    "visible",
    "readable",
    "recovered",
    "least",
    "seconds",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One audit.

    Attributes:
        dataset: name of the data set.
        scaling: "unit" for inputs in [0, 1], "standardised" for mean 0 and deviation 1.
        start: of the network: the paper's, or PyTorch's.
        batch_size: samples in the batch, drawn by the seed.
        neurons: of the attacked layer.
        dtype: what the client computes in.
        seed: draws network and batch.
        setting: what else is special: "plain", or one of `SETTINGS` or `TRAININGS`.
    """

    dataset: str
    scaling: str
    start: str
    batch_size: int
    neurons: int = 1000
    dtype: str = "float64"
    seed: int = 0
    setting: str = "plain"


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What came back.

    Attributes:
        bound: samples that peeling the activation grid reaches.
        visible: samples that are in the update, see `visible`; after local training, in a single
            gradient of the network at its start.
        readable: samples that a server could read, with or without a proof.
        recovered: samples that were certified, and are right.
        by_rows: those of them that the row cascade read.
        false: certificates that are false, inexact, repeated or have a wrong label.
        complete: whether the decoder claims to have the whole batch.
        seconds: of the decoder, on one thread.
    """

    bound: int
    visible: int
    readable: int
    recovered: int
    by_rows: int
    false: int
    complete: int
    seconds: float

    @property
    def cell(self) -> Cell:
        """The audit."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    def __str__(self) -> str:
        where = f"{self.dataset} {self.scaling} {self.start} {self.setting} {self.dtype}"
        return (
            f"{where} N={self.neurons} B={self.batch_size} seed {self.seed}: {self.recovered} of "
            f"{self.batch_size}, peeling bound {self.bound}, {self.false} false, "
            f"{self.seconds:.1f} s"
        )


def _trained(model: nn.Module, x: Tensor, y: Tensor, *, steps: int) -> None:
    """Train on samples that are not in the batch, in minibatches of 32."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    source = torch.Generator().manual_seed(0)
    for _ in range(steps):
        some = torch.randint(len(x), (32,), generator=source)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x[some]), y[some])
        torch.autograd.backward(loss)
        optimiser.step()


@dataclass(frozen=True)
class Setting:
    """What is special about a round.

    Attributes:
        tail: widths of further hidden layers.
        steps: training steps before the round.
        client: how the client trains.
        knows_tail: the decoder knows loss and tail.
    """

    tail: tuple[int, ...] = ()
    steps: int = 0
    client: gp.Client = gp.Client()  # noqa: RUF009 - immutable
    knows_tail: bool = True


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "plain": Setting(),
        "hidden 100": Setting(tail=(100,)),
        "hidden 500, 100": Setting(tail=(500, 100)),
        "nothing known of the tail": Setting(knows_tail=False),
        "trained 10 steps": Setting(steps=10),
        "trained 100 steps": Setting(steps=100),
        "trained 1000 steps": Setting(steps=1000),
        "noise 1e-6": Setting(client=gp.Client(noise=1e-6)),
        "noise 1e-4": Setting(client=gp.Client(noise=1e-4)),
        "noise 1e-3": Setting(client=gp.Client(noise=1e-3)),
    }
)

TRAININGS: Mapping[str, Setting] = MappingProxyType(
    {
        f"lr {lr}, {name}": Setting(client=replace(client, lr=lr))
        for lr in (0.01, 0.1)
        for name, client in (
            ("5 steps", gp.Client(lr=1.0, local_steps=5)),
            ("20 steps", gp.Client(lr=1.0, local_steps=20)),
            ("1 epoch of 16", gp.Client(lr=1.0, local_epochs=1, local_batch_size=16)),
            ("5 epochs of 16", gp.Client(lr=1.0, local_epochs=5, local_batch_size=16)),
        )
    }
)


def goals(seeds: int) -> Iterator[Cell]:
    """Batches of 64 and 128 on 1,000 neurons."""
    for size in (64, 128):
        for dtype in ("float64", "float32"):
            for dataset in STANDARD:
                yield from _cells(dataset, size, seeds, dtype=dtype)


def large(seeds: int) -> Iterator[Cell]:
    """Batches as large as they can be."""
    for dataset in STANDARD:
        yield from _cells(dataset, 256, seeds)
    for dataset in ("mnist", "fashion_mnist", "cifar10"):
        yield from _cells(dataset, 512, min(seeds, 2), starts=("torch",), neurons=4096)


def narrow(seeds: int) -> Iterator[Cell]:
    """The widths of earlier work on exact inversion."""
    for neurons, sizes in (
        (200, (8, 16, 20, 25, 32, 48)),
        (400, (25, 50, 100)),
        (2000, (100, 200)),
    ):
        for size in sizes:
            for dataset in ("imagenet", "cifar10"):
                yield from _cells(
                    dataset,
                    size,
                    seeds,
                    starts=("torch",),
                    scalings=("standardised",),
                    neurons=neurons,
                    dtype="float32",
                )


def limits(seeds: int) -> Iterator[Cell]:
    """Where it stops."""
    fixed = partial(_cells, starts=("torch",), scalings=("standardised",))
    for neurons in (250, 500, 1000):
        for share in SHARES:
            for dataset in ("mnist", "cifar10"):
                yield from fixed(dataset, round(share * neurons), seeds, neurons=neurons)
    for dataset in ("emnist", "cifar100", "imagenet"):
        for share in SHARES:
            yield from fixed(dataset, round(share * 500), seeds, neurons=500)
    for setting in SETTINGS:
        for dataset in ("mnist", "cifar10", "harus"):
            for dtype in ("float64", "float32"):
                yield from fixed(dataset, 64, seeds, dtype=dtype, setting=setting)


def rounds(seeds: int) -> Iterator[Cell]:
    """Rounds of local training."""
    for setting in TRAININGS:
        for dataset in STANDARD:
            yield from _cells(dataset, 64, seeds, setting=setting)


SUITES: Mapping[str, Callable[[int], Iterator[Cell]]] = MappingProxyType(
    {"goals": goals, "large": large, "narrow": narrow, "limits": limits, "rounds": rounds}
)


def _cells(
    dataset: str,
    batch_size: int,
    seeds: int,
    *,
    starts: Iterable[str] = STARTS,
    scalings: Iterable[str] = SCALINGS,
    neurons: int = 1000,
    dtype: str = "float64",
    setting: str = "plain",
) -> Iterator[Cell]:
    for start in starts:
        for scaling in scalings:
            for seed in range(seeds):
                yield Cell(
                    dataset=dataset,
                    scaling=scaling,
                    start=start,
                    batch_size=batch_size,
                    neurons=neurons,
                    dtype=dtype,
                    seed=seed,
                    setting=setting,
                )


@cache
def load_samples(path: Path, scaling: str) -> tuple[Tensor, Tensor, int]:
    """Training samples (n, features), their labels, and the number of classes."""
    dataset = load_cached(path)
    x = torch.as_tensor(np.asarray(dataset.x_train), dtype=torch.float64).flatten(1)
    if scaling == "standardised":
        # Pixels that hardly ever change are not blown up.
        x = (x - x.mean(0)) / (x.std(0) + 0.1 * x.std())
    return x, torch.as_tensor(np.asarray(dataset.y_train)), dataset.classes


def visible(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """How many samples the update holds to within 1 % of the distance between two of them.

    Even who knew all sensitivities could solve for a sample only as exactly as the update is
    rounded: once per number, at the least. The gradient of a prediction that is certain is below
    that.

    Args:
        model: the network.
        x: (batch, features) the batch, in the dtype in which the client computes.
        y: (batch,) labels.
    """
    name = gp.split(model).bias_name
    own = [gradients(model, x[i : i + 1], y[i : i + 1], share=1.0)[name] for i in range(len(x))]
    c, true = torch.stack(own).double(), x.double()
    # The deviation of a number that is rounded to the nearest one is about a fifth of the spacing.
    rounding = 0.2 * torch.finfo(x.dtype).eps * (c.T @ true).square().mean(1).sqrt()
    live = rounding > 0
    equations = c[:, live] / rounding[live]
    size = equations.norm(dim=1)
    there = size > 0
    unit = equations[there] / size[there, None]
    inverse = torch.linalg.pinv(unit @ unit.T, hermitian=True)
    error = inverse.diagonal().clamp(min=0.0).sqrt() / size[there]
    between = torch.pdist(true).median() / true.shape[1] ** 0.5
    return int((error <= 0.01 * between).sum())


def measure(cell: Cell, data_dir: Path) -> Row:
    """Run one audit."""
    x, y, classes = load_samples(data_dir / f"{cell.dataset}.npz", cell.scaling)
    setting = {**SETTINGS, **TRAININGS}[cell.setting]
    dtype = getattr(torch, cell.dtype)
    order = np.random.default_rng([cell.seed, 1]).permutation(len(x))
    batch, others = order[: cell.batch_size], order[cell.batch_size :]
    model = mlp(
        x.shape[1],
        classes,
        (cell.neurons, *setting.tail),
        rng=np.random.default_rng([cell.seed, 0]),
        init="paper" if cell.start == "paper" else "torch",
    ).to(dtype)
    _trained(model, x[others].to(dtype), y[others], steps=setting.steps)
    audit = gp.audit(
        model,
        x[batch].to(dtype),
        y[batch],
        client=setting.client,
        attacker=gp.Attacker(knows_tail=setting.knows_tail),
        seed=cell.seed,
    )
    score = audit.score
    wrong_labels = int((score.labels_judged & ~score.labels_right).sum())
    return Row(
        **asdict(cell),
        bound=round(score.peeling_bound * score.batch_size),
        visible=visible(model, x[batch].to(dtype), y[batch]),
        readable=score.read,
        recovered=score.recovered,
        by_rows=audit.recovery.found_by_rows,
        false=score.false_certificates
        + score.inexact_certificates
        + score.repeats
        + score.wrong_multiplicities
        + wrong_labels,
        complete=int(audit.recovery.complete),
        seconds=audit.seconds,
    )


def tabulate(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Lines of the table: means over seeds."""
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        where = (row.dataset, row.scaling, row.start, row.setting, row.dtype)
        lines.setdefault((*where, row.neurons, row.batch_size), []).append(row)
    for key, line in lines.items():
        rates = [row.recovered / row.batch_size for row in line]
        yield [
            *map(str, key),
            str(len(line)),
            f"{fmean(row.bound / row.batch_size for row in line):.3f}",
            f"{fmean(row.visible / row.batch_size for row in line):.3f}",
            f"{fmean(row.readable / row.batch_size for row in line):.3f}",
            f"{fmean(rates):.3f}",
            f"{min(rates):.3f}",
            f"{fmean(row.seconds for row in line):.1f}",
        ]


def findings(rows: list[Row]) -> Iterator[str]:
    """What matters in a line each."""
    yield f"audits: {len(rows)}"
    yield f"certified and right: {sum(row.recovered for row in rows)}"
    yield f"certified and wrong in any way: {sum(row.false for row in rows)}"
    yield f"read by the row cascade: {sum(row.by_rows for row in rows)}"
    yield f"below the peeling bound: {sum(row.recovered < row.bound for row in rows)} audits"
    whole = sum(row.recovered == row.batch_size for row in rows)
    yield f"batches recovered whole: {whole}"
    yield f"not visible: {sum(row.batch_size - row.visible for row in rows)} samples"
    missing = sum(row.visible - row.recovered for row in rows)
    yield f"visible, but not recovered: {missing} samples"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--suite", choices=[*SUITES], default="goals")
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--datasets", default=",".join(STANDARD), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    chosen = given.datasets.split(",")
    cells = [cell for cell in SUITES[given.suite](given.seeds) if cell.dataset in chosen]
    rows = run(cells, one, given.out, Row, workers=given.workers)
    lines = list(tabulate(rows))
    table = Table(*TITLES)
    for line in lines:
        table.add_row(*line)
    Console(width=160).print(table)
    for finding in findings(rows):
        print(finding)
    if given.markdown:
        given.markdown.write_text(markdown_table(TITLES, lines), encoding="utf-8")
    sys.exit(1 if any(row.false for row in rows) else 0)


if __name__ == "__main__":
    main()
