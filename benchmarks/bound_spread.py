"""How much the peeling bound itself moves with the seed and with the samples drawn.

    python -m benchmarks.bound_spread --data-dir DIR --cells "harus SD-Ind 512, mnist SF-Ind 256"

The paper states neither its seeds nor which samples formed its batches. This prints, per cell, the
peeling bound, over seeds: on the first samples of the files, and on
samples drawn by the seed. Activation grids only, so it is quick.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import PAPER_METHODS, Layer
from gradpeel.exposure import Exposure, copies_of
from gradpeel.paper import published_rates

CELLS = (
    "emnist Passive 64, harus SD-Ind 512, harus SD-Ind 1024, mnist SF-Ind 256, "
    "imagenet TW-Ind 512, imagenet TW-Mir 64"
)


def peeling_bound(
    dataset: Dataset, method: str, batch_size: int, seed: int, *, shuffle: bool, neurons: int
) -> float:
    """Peeling bound of one draw of weights, and of samples if shuffled."""
    batch = draw_batch(dataset, batch_size, shuffle=shuffle, rng=np.random.default_rng([seed, 1]))
    empty = torch.zeros(neurons, dataset.features, dtype=torch.float64)
    layer = (
        PAPER_METHODS[method]
        .build(batch.auxiliary)
        .shape(
            Layer(empty, empty[:, 0]),
            batch_size=batch_size,
            rng=np.random.default_rng(seed),
            front=torch.nn.Flatten(),
        )
    )
    rows = batch.x.flatten(1)
    copies = copies_of(rows)
    fires = rows @ layer.weight.T + layer.bias > 0
    return Exposure.of(fires[copies].T, copies).peeling_bound


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--neurons", type=int, default=1000)
    given = parser.parse_args()
    published = published_rates()
    print(f"peeling bound over {given.seeds} seeds: least, mean, greatest")
    print(f"{'cell':24} {'first samples':>20} {'drawn samples':>20} {'paper':>7}")
    for cell in given.cells.split(","):
        name, method, size = cell.split()
        dataset = load(given.data_dir / f"{name}.npz")
        columns = []
        for shuffle in (False, True):
            rates = [
                peeling_bound(
                    dataset, method, int(size), seed, shuffle=shuffle, neurons=given.neurons
                )
                for seed in range(given.seeds)
            ]
            columns.append(f"{min(rates):.3f} {fmean(rates):.3f} {max(rates):.3f}")
        paper = published[STANDARD[name].title, method, int(size)]
        print(f"{cell.strip():24} {columns[0]:>20} {columns[1]:>20} {paper:7.3f}", flush=True)


if __name__ == "__main__":
    main()
