"""How wrong a guess may be, and how wrong guesses are: why the row cascade stops where it does.

    python -m benchmarks.row_guesses --data-dir DIR --out row-guesses.csv --markdown table.md

A row is found from a guess of where its sample fires. Two numbers decide whether that works:

- how many neurons of the guess may be on the wrong side. Measured by taking the true pattern of a
  sample, putting a share of its neurons on the other side, and running the search from there;
- how many are. Measured on the mixtures that the cascade starts from, each compared with the sample
  that it is nearest to: with nothing known, and with half of the rows known.

The first falls as the batch grows, because the space gets larger: N equations stand against B + K
unknowns. The second rises, because a mixture then holds more samples. Where they meet, the cascade
cannot start.

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. Rows are appended as they come,
so an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

import gradpeel as gp
from benchmarks.cells import run
from benchmarks.command import arguments, show
from benchmarks.rows import load_samples
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.directions import directions
from gradpeel.decoder.rows.row_sets import ByNextLayer, BySilence, RowSet
from gradpeel.decoder.rows.search import search
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.networks import mlp

WRONG = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
TITLES = (
    "data",
    "rows by",
    "N",
    "B",
    *(f"{share:.0%}" for share in WRONG),
    "survives",
    "seeds",
    "seeds, half known",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One network and batch.

    Attributes:
        dataset: name of the data set; its inputs are standardised.
        by: "next layer" where its weights are used, "silence" where not.
        batch_size: samples in the batch, drawn by the seed.
        neurons: of the attacked layer, as PyTorch initialises it.
        seed: draws network and batch.
    """

    dataset: str
    by: str
    batch_size: int
    neurons: int = 1000
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What was measured.

    Attributes:
        found: for each share of `WRONG`, in a string, the share of samples whose row was found.
        seeds: share of neurons on the wrong side in the best tenth of the mixtures, with nothing
            known.
        seeds_half_known: the same with half of the rows known.
    """

    found: str
    seeds: float
    seeds_half_known: float

    @property
    def cell(self) -> Cell:
        """The network and batch."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    @property
    def shares(self) -> list[float]:
        """The entries of `found`."""
        return [float(part) for part in self.found.split()]

    def __str__(self) -> str:
        return (
            f"{self.dataset} by {self.by} N={self.neurons} B={self.batch_size} seed {self.seed}: "
            f"{self.found}; seeds {self.seeds:.3f}, {self.seeds_half_known:.3f}"
        )


def cells(datasets: Iterable[str], seeds: int) -> Iterator[Cell]:
    """Batches from easy to impossible."""
    for dataset in datasets:
        for by in ("next layer", "silence"):
            for size in (64, 128, 192, 256, 320, 384):
                for seed in range(seeds):
                    yield Cell(dataset=dataset, by=by, batch_size=size, seed=seed)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Search from guesses that are wrong by a known share."""
    x, y, classes = load_samples(data_dir / f"{cell.dataset}.npz", "standardised")
    order = np.random.default_rng([cell.seed, 1]).permutation(len(x))[: cell.batch_size]
    rng = np.random.default_rng([cell.seed, 0])
    model = mlp(x.shape[1], classes, (cell.neurons,), rng=rng, init="torch").double()
    target = gp.split(model)
    residual = Residual(target, gp.local_update(model, x[order], y[order]))
    space = RowSpace.of(residual)
    if space is None or space.rank != cell.batch_size:
        raise ValueError(f"{cell}: the rank does not show all samples")
    kind: RowSet = BySilence(space)
    if cell.by == "next layer":
        kind = ByNextLayer(space, model.get_parameter("2.weight"))
    fires = (x[order] @ target.weight.T + target.bias > 0)[:, space.live].detach()
    true = _true_rows(model, x[order], y[order])[:, space.live] / space.error
    true = torch.nn.functional.normalize(true, dim=1)
    found = [
        _share_found(space, kind, residual, fires, true, wrong=wrong, width=classes)
        for wrong in WRONG
    ]
    stream = Seeds(residual, space)
    here = torch.nn.functional.normalize(true * (space.error / space.unit), dim=1)
    half = here[: cell.batch_size // 2]
    return Row(
        **asdict(cell),
        found=" ".join(f"{share:.3f}" for share in found),
        seeds=_wrong_share(stream, space, fires, here[:0]),
        seeds_half_known=_wrong_share(stream, space, fires[len(half) :], half),
    )


def _true_rows(model: torch.nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """(batch, neurons) sensitivities of every sample."""
    hidden = model[:-2](x).detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(model[-2:](hidden), y, reduction="sum")
    rows: Tensor = torch.autograd.grad(loss, hidden)[0]
    return rows


@torch.no_grad()
def _share_found(
    space: RowSpace,
    kind: RowSet,
    residual: Residual,
    fires: Tensor,
    true: Tensor,
    *,
    wrong: float,
    width: int,
) -> float:
    """Share of samples whose row is found from guesses that are wrong, one for each.

    Args:
        space: the column space.
        kind: what rows look like.
        residual: the update.
        fires: (batch, live) where the samples fire.
        true: (batch, live) their rows, in units of the error, of length 1.
        wrong: share of neurons that the guess has on the wrong side.
        width: of the next layer.
    """
    source = torch.Generator().manual_seed(0)
    count = min(LIMITS.row_batch, len(fires))
    guess = fires[:count] ^ (torch.rand(count, fires.shape[1], generator=source) < wrong)
    everywhere = torch.zeros(count, len(space.live), dtype=torch.float64)
    everywhere[:, space.live] = guess.double()
    options = directions(everywhere, residual, width=width, backward=None)
    reached = torch.zeros(len(fires), dtype=torch.bool)
    for led in search(space, kind, guess, options):
        for row, error in kind.polish(led):
            if float(error) <= kind.most_error:
                reached |= (true @ row).abs() > 1.0 - LIMITS.row_same_guess
    return float(reached[:count].double().mean())


@torch.no_grad()
def _wrong_share(seeds: Seeds, space: RowSpace, fires: Tensor, known: Tensor) -> float:
    """Share of neurons on the wrong side, of the best tenth of the mixtures.

    Args:
        seeds: the mixtures.
        space: the column space.
        fires: (n, live) where the samples fire that are not known.
        known: (m, live) rows that are known, in the units of the search.
    """
    pattern = (seeds.draw(4 * LIMITS.row_batch, known) > 0)[:, space.live].double()
    one = fires.double()
    apart = pattern @ (1.0 - one).T + (1.0 - pattern) @ one.T
    nearest = apart.amin(1) / fires.shape[1]
    return float(nearest.quantile(0.1))


def survives(shares: list[float]) -> str:
    """The largest share of wrong neurons at which at least half of the rows are found."""
    good = [wrong for wrong, share in zip(WRONG, shares, strict=True) if share >= 0.5]
    return f"{max(good):.0%}" if good else "-"


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table: means over seeds."""
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.dataset, row.by, row.neurons, row.batch_size), []).append(row)
    for key, line in lines.items():
        means = [fmean(parts) for parts in zip(*(row.shares for row in line), strict=True)]
        yield [
            *map(str, key),
            *(f"{mean:.2f}" for mean in means),
            survives(means),
            f"{fmean(row.seeds for row in line):.0%}",
            f"{fmean(row.seeds_half_known for row in line):.0%}",
        ]


def main() -> None:
    parser = arguments(__doc__, out="row-guesses.csv")
    parser.add_argument("--datasets", default="mnist,cifar100", help="names, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    rows = run(
        cells(given.datasets.split(","), given.seeds), one, given.out, Row, workers=given.workers
    )
    show(TITLES, tabulate(rows), markdown=given.markdown)


if __name__ == "__main__":
    main()
