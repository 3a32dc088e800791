"""How far the row cascade reads batches of an untouched network, beside the peeling bound.

    python -m benchmarks.rows --data-dir DIR --out rows.csv --markdown rows-table.md
    python -m benchmarks.rows --data-dir DIR --suite limits --out limits.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. `benchmarks.row_suites` lists
the suites. Rows are appended as they come, so an interrupted run resumes; give every version of the
code a file of its own. The exit code is 1 if anything that was certified is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached, markdown_table, run
from benchmarks.command import arguments, show
from benchmarks.row_suites import SETTINGS, STARTS, SUITES, Cell, Setting
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import Design, DesignName, DesignOptions, Passive
from gradpeel.gradients import gradients
from gradpeel.networks import mlp

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
SUMMARY_TITLES = (
    "setting",
    "N",
    "B",
    "dtype",
    "inputs",
    "start",
    "peeling bound",
    "visible",
    "readable",
    "recovered",
    "least, of a data set",
    "slowest, seconds",
)


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What came back.

    Attributes:
        bound: samples that peeling the activation grid reaches.
        visible: samples that are in the update, see `visible`.
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


@cache
def load_samples(path: Path, scaling: str, most: int | None = None) -> tuple[Tensor, Tensor, int]:
    """Training samples (n, features), all or the first ones, their labels, and the classes."""
    dataset = load_cached(path)
    x = torch.as_tensor(np.asarray(dataset.x_train[:most]), dtype=torch.float64).flatten(1)
    if scaling == "standardised":
        # Pixels that hardly ever change are not blown up.
        x = (x - x.mean(0)) / (x.std(0) + 0.1 * x.std())
    return x, torch.as_tensor(np.asarray(dataset.y_train[:most])), dataset.classes


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
    return row_of(cell, decode(cell, SETTINGS[cell.setting], data_dir))


def decode(
    cell: Cell, setting: Setting, data_dir: Path, *, effort: float = 1.0, most: int | None = None
) -> gp.Audit:
    """Simulate a round and decode it.

    Args:
        cell: the round.
        setting: what its name stands for.
        data_dir: where the data sets are.
        effort: of the row cascade.
        most: samples of the data set to draw from, the first ones; None for all.
    """
    x, y, classes = load_samples(data_dir / f"{cell.dataset}.npz", cell.scaling, most)
    dtype = getattr(torch, cell.dtype)
    order = np.random.default_rng([cell.seed, 1]).permutation(len(x))
    batch, others = order[: cell.batch_size], order[cell.batch_size :]
    model = mlp(
        x.shape[1],
        classes,
        (cell.neurons, *setting.tail),
        rng=np.random.default_rng([cell.seed, 0]),
        init="torch" if cell.start == "torch" else "paper",
    ).to(dtype)
    _trained(model, x[others].to(dtype), y[others], steps=setting.steps)
    design: Design = Passive()
    if cell.start not in STARTS:
        design = DesignOptions(DesignName(cell.start)).build(x[others[: cell.batch_size]])
    return gp.audit(
        model,
        x[batch].to(dtype),
        y[batch],
        client=setting.client,
        attacker=gp.Attacker(design, knows_tail=setting.knows_tail, effort=effort),
        seed=cell.seed,
    )


def row_of(cell: Cell, audit: gp.Audit) -> Row:
    """What came back from an audit."""
    score = audit.score
    wrong_labels = int((score.labels_judged & ~score.labels_right).sum())
    return Row(
        **asdict(cell),
        bound=round(score.peeling_bound * score.batch_size),
        visible=visible(audit.model, audit.truth, audit.y),
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


def summarise(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Lines of the summary: means over data sets and seeds, and the data set with the least."""
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        where = (row.setting, row.neurons, row.batch_size, row.dtype, row.scaling, row.start)
        lines.setdefault(where, []).append(row)
    for key, line in lines.items():
        by_data = {
            name: fmean(row.recovered / row.batch_size for row in line if row.dataset == name)
            for name in dict.fromkeys(row.dataset for row in line)
        }
        least = min(by_data, key=lambda name: by_data[name])
        yield [
            *map(str, key),
            *(
                f"{fmean(getattr(row, name) / row.batch_size for row in line):.3f}"
                for name in ("bound", "visible", "readable", "recovered")
            ),
            f"{by_data[least]:.3f} {STANDARD[least].title}" if by_data[least] < 1.0 else "1.000",
            f"{max(row.seconds for row in line):.0f}",
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
    parser = arguments(__doc__, out="rows.csv")
    parser.add_argument("--suite", choices=[*SUITES], default="goals")
    parser.add_argument("--datasets", default=",".join(STANDARD), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    chosen = given.datasets.split(",")
    cells = [cell for cell in SUITES[given.suite](given.seeds) if cell.dataset in chosen]
    rows = run(cells, one, given.out, Row, workers=given.workers)
    summary = markdown_table(SUMMARY_TITLES, summarise(rows))
    show(TITLES, tabulate(rows), findings(rows), markdown=given.markdown, before=f"{summary}\n")
    sys.exit(1 if any(row.false for row in rows) else 0)


if __name__ == "__main__":
    main()
