"""What simpler changes to an update than the guard's stop, and what they leave.

    python -m benchmarks.guard_choices --data-dir DIR [--out docs/guard-choices.csv]
        [--markdown docs/guard-choices-table.md]

One gradient of 32 samples in a network of 400 neurons, float64. Neurons that exactly one sample
fires start the cascade: they are set to zero, or get noise of a hundredth of their size. Or all
neurons get it, or the bias gradient is withheld, or the guard changes the layer. Each result is
decoded by peeling, and with the row cascade at its full effort. Two more columns ask the weight
gradient alone, as a server without the bias gradient would: *directions* counts the samples that
are a multiple of one neuron's gradient, up to a hundredth of their length, and *in the span* those
that the neurons' gradients span, up to a millionth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import gradpeel as gp
from benchmarks.cells import run
from benchmarks.command import arguments, show
from benchmarks.guarding import prepare

CHANGES = (
    "none",
    "starting neurons to zero",
    "noise on starting neurons",
    "noise on all neurons",
    "bias gradient withheld",
    "guard",
)
DESIGNS = ("Passive", "Default", "SD-Ind")
DATASETS = ("cifar10", "fashion_mnist", "harus")
SAMPLES, NEURONS, NOISE = 32, 400, 0.01
NEAR, EXACT = 0.01, 1e-6
TITLES = (
    *("change", "updates", "neurons changed", "peeled", "read", "members"),
    *("directions", "in the span"),
)
HEAD = (
    "# Guard: other changes\n\nWritten by `python -m benchmarks.guard_choices --data-dir DATA "
    "--out docs/guard-choices.csv --markdown docs/guard-choices-table.md`; explained in "
    f"[Guard](guard.md#what-it-changes). Shares of the {SAMPLES} samples of a batch; the network "
    f"has {NEURONS} neurons. Read means by peeling and the row cascade, with or without proof; the "
    "last two columns ask the weight gradient alone.\n\n"
)


@dataclass(frozen=True)
class Cell:
    """One change of one update."""

    dataset: str
    design: str
    change: str
    seed: int


@dataclass(frozen=True)
class Row(Cell):
    """What was read of it."""

    changed: int
    peeled: int
    readable: int
    members: int
    directions: int
    spanned: int
    false: int

    @property
    def cell(self) -> Cell:
        """What this is the measurement of."""
        return Cell(self.dataset, self.design, self.change, self.seed)

    def __str__(self) -> str:
        return f"{self.cell}: {self.peeled} peeled, {self.readable} read"


def measure(cell: Cell, data_dir: Path) -> Row:
    """Change one update, and decode it."""
    model, x, y, _ = prepare(
        cell.dataset, cell.design, SAMPLES, cell.seed, data_dir=data_dir, neurons=NEURONS
    )
    update = gp.local_update(model, x, y)
    if cell.change == "guard":
        sent = gp.guard(model, x, y, update=update, check=False).update
    else:
        sent = _change(cell, update, gp.exposure(model, x).degrees == 1)
    peeled = gp.check(model, x, y, update=sent, attacker=gp.Attacker(effort=0))
    read = gp.check(model, x, y, update=sent, members=True)
    first, before = next(iter(sent.gradients.values())), next(iter(update.gradients.values()))
    if read.audit is None:  # pragma: no cover - a decoded check always has one
        raise RuntimeError("not decoded")
    return Row(
        *(cell.dataset, cell.design, cell.change, cell.seed),
        changed=NEURONS if cell.change == CHANGES[4] else int((first != before).any(1).sum()),
        peeled=peeled.readable,
        readable=read.readable,
        members=read.members or 0,
        directions=_directions(first, x),
        spanned=_spanned(first, x),
        false=read.audit.score.false_certificates,
    )


def _change(cell: Cell, update: gp.Update, starts: Tensor) -> gp.Update:
    names = list(update.gradients)[:2]
    weight, bias = (update.gradients[name].clone() for name in names)
    if cell.change == CHANGES[1]:
        weight[starts], bias[starts] = 0.0, 0.0
    elif cell.change in CHANGES[2:4]:
        chosen = starts if cell.change == CHANGES[2] else torch.ones_like(starts)
        source = torch.Generator().manual_seed(cell.seed)
        for gradient in (weight, bias):
            size = gradient.abs() if gradient.dim() == 1 else gradient.norm(dim=1, keepdim=True)
            size = size / gradient[0].numel() ** 0.5
            noise = torch.randn(gradient.shape, generator=source, dtype=gradient.dtype)
            gradient[chosen] += (NOISE * size * noise)[chosen]
    elif cell.change == CHANGES[4]:
        bias.zero_()
    return replace(update, gradients={**update.gradients, names[0]: weight, names[1]: bias})


def _directions(gradient: Tensor, x: Tensor) -> int:
    """How many samples a row of the gradient is a multiple of."""
    rows = gradient[gradient.any(1)]
    rows, flat = (one / one.norm(dim=1, keepdim=True) for one in (rows, x.flatten(1)))
    if not len(rows):
        return 0
    sines = (1 - (flat @ rows.T).square()).clamp(min=0).sqrt()
    return int((sines.amin(1) < NEAR).sum())


def _spanned(gradient: Tensor, x: Tensor) -> int:
    """How many samples are mixtures of the rows of the gradient."""
    _, values, right = torch.linalg.svd(gradient, full_matrices=False)
    span = right[values > 1e-9 * values[0]] if float(values[0]) else right[:0]
    flat = x.flatten(1)
    apart = (flat - flat @ span.T @ span).norm(dim=1) / flat.norm(dim=1)
    return int((apart < EXACT).sum())


def tabulate(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """One line for each change."""
    for change in CHANGES:
        some = [row for row in rows if row.change == change]
        if not some:
            continue
        changed = np.mean([row.changed for row in some]) / NEURONS
        names = ("peeled", "readable", "members", "directions", "spanned")
        means = (np.mean([getattr(row, name) for row in some]) / SAMPLES for name in names)
        yield (change, str(len(some)), f"{changed:.1%}", *(f"{mean:.2f}" for mean in means))


def main() -> None:
    parser = arguments(__doc__, out="guard-choices.csv")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    cells = [
        Cell(dataset, design, change, seed)
        for seed in range(given.seeds)
        for design in DESIGNS
        for dataset in DATASETS
        for change in CHANGES
    ]
    one = partial(measure, data_dir=given.data_dir)
    rows = run(cells, one, given.out, Row, workers=given.workers)
    found = [f"{len(rows)} updates, {sum(row.false for row in rows)} false certificates"]
    show(TITLES, tabulate(rows), found, markdown=given.markdown, before=HEAD)


if __name__ == "__main__":
    main()
