"""What an honest server reads from ten well-known networks.

    python -m benchmarks.gallery --data-dir DIR --out gallery.csv --markdown table.md
    python -m benchmarks.gallery --data-dir DIR --suite behind --out behind.csv
    python -m benchmarks.gallery --data-dir DIR --suite float64 --out float64.csv

The second suite has layers of several widths with dropout or batch norm right behind their ReLU, in
training mode, where nobody can simulate what the client computed. The third has the networks of
which float32 hides what peeling reaches, with the same weights and batches in float64.

DIR holds `mnist.npz`, `cifar10.npz` and `harus.npz`. Texts and tables are drawn: words by Zipf's
law, categories evenly, numbers normally. In the other suites clients compute in float32. They send
the gradient of one batch; the network has PyTorch's default initialisation and the server changes
nothing.

Rows are appended as they come, so an interrupted run resumes; give every version of the code a file
of its own. The exit code is 1 if any certificate is false.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached, run
from benchmarks.command import arguments, show
from benchmarks.gallery_networks import (
    CATEGORIES,
    IN_FLOAT64,
    NETWORKS,
    NOT_SIMULATED,
    NUMBERS,
    VOCABULARY,
)

BATCH_SIZES = (1, 8, 32, 64, 128)
WORDS = 40
SHORT = 0.02
TITLES = (
    "network", "data", "layer", "neurons", "inputs", "comes back", "B", "rows",
    "peeling bound", "recovered", "readable", "false", "seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One network and a batch.

    Attributes:
        network: one of `NETWORKS`, `NOT_SIMULATED` or `IN_FLOAT64`.
        batch_size: samples of the client.
        seed: draws initialisation and batch.
    """

    network: str
    batch_size: int
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What the server reads.

    Attributes:
        data: what the network takes.
        layer: the layer that is read.
        neurons: its neurons.
        features: its inputs.
        space: "input" if samples come back, "features" if the inputs of the layer do.
        rows: number of rows that enter the layer: samples, or tokens of them.
        bound: how many of them peeling reaches.
        recovered: how many came back with a certificate.
        readable: how many are among all that was read, proof or not.
        false: certificates of what is not in the batch.
        seconds: that it took, on one thread.
    """

    data: str
    layer: str
    neurons: int
    features: int
    space: str
    rows: int
    bound: int
    recovered: int
    readable: int
    false: int
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    @property
    def misses(self) -> bool:
        """Whether less came back than peeling reaches."""
        return self.recovered < self.bound - SHORT * self.rows

    def __str__(self) -> str:
        return (
            f"{self.network} B={self.batch_size}: bound {self.bound}, recovered {self.recovered}, "
            f"readable {self.readable} of {self.rows}, false {self.false}, {self.seconds:.1f} s"
        )


SUITES: Mapping[str, tuple[Iterable[str], Sequence[int]]] = MappingProxyType(
    {
        "gallery": (NETWORKS, BATCH_SIZES),
        "behind": (NOT_SIMULATED, (8, 32)),
        "float64": (IN_FLOAT64, BATCH_SIZES),
    }
)
"""Networks and batch sizes."""


def cells(suite: str, seeds: int) -> Iterator[Cell]:
    """All networks of a suite with all its batch sizes."""
    networks, sizes = SUITES[suite]
    for seed in range(seeds):
        for network in networks:
            for size in sizes:
                yield Cell(network=network, batch_size=size, seed=seed)


def draw(data: str, size: int, seed: int, data_dir: Path) -> tuple[Tensor, Tensor]:
    """A batch as the networks take it, and its labels."""
    rng = np.random.default_rng([seed, size])
    if data == "words":
        odds = 1 / np.arange(1, VOCABULARY + 1)
        words = rng.choice(VOCABULARY, size=(size, WORDS), p=odds / odds.sum())
        return torch.from_numpy(words), torch.from_numpy(rng.integers(4, size=size))
    if data == "table":
        codes = np.stack([rng.integers(values, size=size) for values in CATEGORIES], 1)
        numbers = rng.normal(size=(size, NUMBERS))
        table = torch.from_numpy(np.concatenate([codes, numbers], 1)).float()
        return table, torch.from_numpy(rng.integers(2, size=size))
    dataset = load_cached(data_dir / f"{data}.npz")
    chosen = rng.permutation(len(dataset.x_train))[:size]
    x = torch.from_numpy(np.asarray(dataset.x_train)[chosen]).float()
    y = torch.from_numpy(np.asarray(dataset.y_train)[chosen]).long()
    if x.ndim > 2:
        # Datasets hold channels last, or none.
        x = x[:, None] if x.ndim == 3 else x.movedim(-1, 1)
    return x, y


def audited(cell: Cell, model: nn.Module, x: Tensor, y: Tensor) -> gp.Audit:
    """Audit a network with the loss that it is trained with."""
    if cell.network == "autoencoder":
        return gp.audit(model, x, x.flatten(1), client=gp.Client(loss=nn.MSELoss()))
    if cell.network == "regression":
        return gp.audit(model, x, x[:, :1] + y[:, None], client=gp.Client(loss=nn.MSELoss()))
    return gp.audit(model, x, y)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Audit one batch of one network."""
    data, make = {**NETWORKS, **NOT_SIMULATED, **IN_FLOAT64}[cell.network]
    torch.manual_seed(cell.seed)
    model = make()
    x, y = draw(data, cell.batch_size, cell.seed, data_dir)
    started = time.perf_counter()
    found = audited(cell, model, x, y)
    score = found.score
    return Row(
        **asdict(cell),
        data=data,
        layer=found.recovery.layer,
        neurons=found.exposure.grid.shape[0],
        features=found.features,
        space=found.recovery.space,
        rows=score.batch_size,
        bound=round(score.peeling_bound * score.batch_size),
        recovered=score.recovered,
        readable=score.read,
        false=score.false_certificates,
        seconds=time.perf_counter() - started,
    )


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table."""
    back = {"input": "samples", "features": "features"}
    for row in rows:
        comes_back = back[row.space] if row.rows == row.batch_size else "tokens' features"
        yield [
            row.network, row.data, f"`{row.layer}`", str(row.neurons), str(row.features),
            comes_back, str(row.batch_size), str(row.rows), str(row.bound), str(row.recovered),
            str(row.readable), str(row.false), f"{row.seconds:.1f}",
        ]  # fmt: skip


def findings(rows: list[Row]) -> Iterator[str]:
    """What matters in a line each."""
    yield f"rows that entered a layer: {sum(row.rows for row in rows):,}"
    yield f"within reach of peeling: {sum(row.bound for row in rows):,}"
    yield f"recovered: {sum(row.recovered for row in rows):,}"
    yield f"readable: {sum(row.readable for row in rows):,}"
    yield f"false certificates: {sum(row.false for row in rows)}"
    short = [f"{row.network} B={row.batch_size}" for row in rows if row.misses]
    yield f"fewer than the peeling bound less {SHORT}: {', '.join(short) or 'none'}"


def main() -> None:
    parser = arguments(__doc__, out="gallery.csv")
    parser.add_argument("--suite", choices=[*SUITES], default="gallery")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    rows = run(cells(given.suite, given.seeds), one, given.out, Row, workers=given.workers)
    show(TITLES, tabulate(rows), findings(rows), markdown=given.markdown)
    sys.exit(1 if any(row.false for row in rows) else 0)


if __name__ == "__main__":
    main()
