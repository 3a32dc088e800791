"""From features to pictures: how close `Audit.invert` comes behind a convolutional network.

    python -m benchmarks.inversion --data-dir DIR --out inversion.csv --markdown table.md

DIR holds `mnist.npz`, `fashion_mnist.npz` and `cifar10.npz`. A cell draws a batch, audits the CNN
of the FedAvg paper (two 5x5 convolutions of 32 and 64 channels with pooling, 512 ReLU units,
PyTorch's start, float32) and reconstructs the pictures of all feature vectors that were recovered.
Goals: 95 % of the pictures of MNIST and Fashion-MNIST at 60 dB or more, a median of 30 dB on
CIFAR-10, and at most 2 seconds of CPU time for a picture.

Rows are appended as they come, so an interrupted run resumes; give every version of the code a file
of its own. The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp
from benchmarks.cells import load_cached, run
from benchmarks.command import arguments, show
from gradpeel.datasets import draw_batch

DATASETS = ("mnist", "fashion_mnist", "cifar10")
CLEAR = 60.0
"""Decibels from which on a picture counts as the original."""
GOALS = {"share": 0.95, "median": 30.0, "seconds": 2.0}
TITLES = (
    "data", "seed", "B", "recovered", "determined", "free dimensions", "60 dB or more",
    "least dB", "median dB", "median SSIM", "front's gradients", "CPU s per picture",
)  # fmt: skip


class FedAvgCNN(nn.Module):
    """The CNN of the FedAvg paper (McMahan et al., 2017)."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * (side // 4) ** 2, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (batch, 10), of pictures, (batch, channels, side, side)."""
        x = functional.max_pool2d(self.conv1(x).relu(), 2)
        x = functional.max_pool2d(self.conv2(x).relu(), 2)
        logits: Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One audit.

    Attributes:
        dataset: name of the data set.
        batch_size: pictures in the batch.
        seed: draws network and batch.
    """

    dataset: str
    batch_size: int = 64
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """How close the reconstructions are.

    Attributes:
        recovered: feature vectors that were recovered.
        determined: reconstructions that features determine.
        free: estimated dimensions of a picture that its features do not determine, on average.
        clear: reconstructions at `CLEAR` or better.
        least: worst of them, in decibels.
        median: of all, in decibels.
        ssim: median structural similarity.
        mismatch: of the front's gradients; -1 where it says nothing.
        seconds: CPU time per picture, on one thread.
    """

    recovered: int
    determined: int
    free: float
    clear: int
    least: float
    median: float
    ssim: float
    mismatch: float
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    @property
    def reaches_goals(self) -> bool:
        """Whether this cell is as good as it must be."""
        if self.seconds > GOALS["seconds"]:
            return False
        if self.dataset == "cifar10":
            return self.median >= GOALS["median"]
        return self.clear >= GOALS["share"] * self.batch_size

    def __str__(self) -> str:
        return (
            f"{self.dataset} seed={self.seed} B={self.batch_size}: {self.recovered} recovered, "
            f"{self.determined} determined, {self.clear} at {CLEAR:.0f} dB, median "
            f"{self.median:.1f} dB, {self.seconds:.2f} CPU s per picture"
        )


def cells(seeds: int, batch_size: int) -> Iterator[Cell]:
    """All of them."""
    for seed in range(seeds):
        for dataset in DATASETS:
            yield Cell(dataset=dataset, batch_size=batch_size, seed=seed)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Audit one batch and reconstruct its pictures."""
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    rng = np.random.default_rng([cell.seed, 1])
    batch = draw_batch(dataset, cell.batch_size, shuffle=True, rng=rng)
    x = batch.x.float()
    x = x[:, None] if x.ndim == 3 else x.movedim(3, 1).contiguous()
    torch.manual_seed(cell.seed)
    audit = gp.audit(FedAvgCNN(x.shape[1], x.shape[2]), x, batch.y)
    started = time.process_time()
    found = audit.invert(data_range=(0, 1))
    seconds = time.process_time() - started
    likeness = found.likeness
    assert likeness is not None  # noqa: S101 -- for the type checker
    # Where nothing is recovered, nothing is close.
    none = torch.zeros(0 if len(found) else 1)
    decibels, similarity, hidden = (
        torch.cat([values.nan_to_num(0.0, posinf=1e3), none])
        for values in (likeness.psnr, likeness.ssim, found.hidden)
    )
    return Row(
        **asdict(cell),
        recovered=audit.score.recovered,
        determined=int(found.determined.sum()),
        free=float(hidden.mean()) * x[0].numel(),
        clear=int((decibels >= CLEAR).sum()),
        least=float(decibels.min()),
        median=float(decibels.median()),
        ssim=float(similarity.median()),
        mismatch=-1.0 if found.mismatch is None else found.mismatch,
        seconds=seconds / max(len(found), 1),
    )


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table."""
    for row in rows:
        yield [
            row.dataset, str(row.seed), str(row.batch_size), str(row.recovered),
            str(row.determined), f"{row.free:.0f}", str(row.clear), f"{row.least:.1f}",
            f"{row.median:.1f}", f"{row.ssim:.3f}",
            "" if row.mismatch < 0 else f"{row.mismatch:.0e}", f"{row.seconds:.2f}",
        ]  # fmt: skip


def findings(rows: list[Row]) -> Iterator[str]:
    """What matters in a line each."""
    for dataset in DATASETS:
        some = [row for row in rows if row.dataset == dataset]
        if some:
            share = sum(row.clear for row in some) / sum(row.batch_size for row in some)
            median = float(np.median([row.median for row in some]))
            slowest = max(row.seconds for row in some)
            yield (
                f"{dataset}: {share:.1%} at {CLEAR:.0f} dB or more, median {median:.1f} dB, "
                f"at most {slowest:.2f} CPU s per picture"
            )


def main() -> None:
    parser = arguments(__doc__, out="inversion.csv")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    given = parser.parse_args()
    one = partial(measure, data_dir=given.data_dir)
    chosen = cells(given.seeds, given.batch_size)
    rows = run(chosen, one, given.out, Row, workers=given.workers)
    show(TITLES, tabulate(rows), findings(rows), markdown=given.markdown)
    sys.exit(0 if all(row.reaches_goals for row in rows) else 1)


if __name__ == "__main__":
    main()
