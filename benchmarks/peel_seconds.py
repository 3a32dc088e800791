"""CPU seconds of one peel, beside those of the one product it cannot do without.

    python -m benchmarks.peel_seconds --data-dir DIR

CIFAR-10, Soliton-Data, independent weights, 1000 neurons, float64, one thread; both are measured
in the same run, the best of `--repeat`, because machines are noisy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import gradpeel as gp
from gradpeel.datasets import draw_batch, load
from gradpeel.designs import SolitonData
from gradpeel.exposure import peel_grid
from gradpeel.networks import mlp


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    """Least CPU time of `work` over some runs, after one to warm up."""
    work()
    taken = []
    for _ in range(repeat):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--batch-sizes", default="128,256,512,1024")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load(given.data_dir / f"{given.dataset}.npz")
    print(f"{given.dataset}, Soliton-Data, 1000 neurons, float64, one thread")
    print("batch  recovered  rounds  peel (s)  W1 G (s)  ratio  grid peel (ms)")
    for batch_size in map(int, given.batch_sizes.split(",")):
        batch = draw_batch(dataset, batch_size)
        network = mlp(
            dataset.features,
            dataset.classes,
            rng=np.random.default_rng([0, 0]),
            sample_shape=dataset.sample_shape,
        )
        audit = gp.audit(network, batch.x, batch.y, design=SolitonData(batch.auxiliary))
        target = gp.split(audit.model)
        gradient = audit.update.gradients[target.weight_name]
        peel = cpu_seconds(partial(gp.peel, audit.model, audit.update), given.repeat)
        floor = cpu_seconds(partial(torch.matmul, gradient, target.weight.T), given.repeat)
        grid = 1e3 * cpu_seconds(partial(peel_grid, audit.exposure.grid), 20)
        found = f"{audit.score.recovered:5d} {audit.recovery.cascade_length:11d}"
        print(f"{batch_size:5d} {found} {peel:11.2f} {floor:9.2f} {peel / floor:6.1f} {grid:15.2f}")


if __name__ == "__main__":
    main()
