"""A floor for attack strength on real data, and zero false certificates: the decoder's promise.

A weaker attack "still shows images"; only a number notices. The floors are the oracle's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import gradpeel as gp
from benchmarks.recovery import Cell, measure
from gradpeel.datasets import draw_batch, load
from gradpeel.designs import PAPER_METHODS
from gradpeel.networks import mlp

pytestmark = pytest.mark.slow

CELLS = [
    Cell("cifar10", "Passive", 64, 0),
    Cell("cifar10", "SD-Ind", 512, 0),
    Cell("cifar10", "TW-Ind", 128, 0),
    Cell("cifar100", "SD-Mir", 256, 1),
    Cell("cifar100", "Passive", 128, 0),
    Cell("mnist", "SF-Mir", 256, 0),
    Cell("emnist", "SD-Ind", 512, 2),
    Cell("fashion_mnist", "Passive", 128, 0),
    Cell("fashion_mnist", "SD-Ind", 512, 0),
    Cell("svhn", "SF-Ind", 128, 0),
    Cell("svhn", "Passive", 64, 1),
    Cell("harus", "SD-Mir", 512, 0),
    Cell("harus", "TW-Mir", 128, 0),
    Cell("imagenet", "SD-Ind", 256, 0),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_reaches_what_peeling_can_reach(cell: Cell, data_dir: Path) -> None:
    row = measure(cell, data_dir, neurons=1000)
    assert row.false_certificates == 0
    assert row.repeats == 0
    assert row.wrong_labels == 0
    assert row.missed == 0
    assert row.recovered >= row.reachable - 0.01 * cell.batch_size - row.faint
    assert row.max_abs_error < 1e-3


# The paper's rates for these cells are 1.000: an attack that shows less has been weakened.
STRENGTH = [
    ("cifar10", "SD-Ind", 256),
    ("cifar10", "SD-Mir", 256),
    ("mnist", "SD-Ind", 256),
    ("fashion_mnist", "SF-Ind", 128),
    ("harus", "SD-Ind", 256),
    ("cifar100", "Passive", 64),
]


@pytest.mark.parametrize(("name", "method", "size"), STRENGTH)
def test_attack_strength_has_a_floor(name: str, method: str, size: int, data_dir: Path) -> None:
    row = measure(Cell(name, method, size, 0), data_dir, neurons=1000)
    assert row.rate >= 0.98
    assert row.baseline_rate < row.rate


@pytest.mark.parametrize("hidden", [(256, 128), (64,)])
def test_deeper_tails_on_real_data(hidden: tuple[int, ...], data_dir: Path) -> None:
    dataset = load(data_dir / "cifar10.npz")
    batch = draw_batch(dataset, 128)
    network = mlp(
        dataset.features,
        dataset.classes,
        hidden=(1000, *hidden),
        rng=np.random.default_rng([0, 0]),
        sample_shape=dataset.sample_shape,
    )
    design = PAPER_METHODS["SD-Ind"](batch.auxiliary)
    audit = gp.audit(network, batch.x, batch.y, design=design)
    assert audit.score.recovery_rate == audit.score.oracle_rate
    assert audit.score.false_certificates == 0
    assert audit.score.label_accuracy == 1.0
    assert audit.recovery.complete


@pytest.mark.parametrize("method", ["SD-Ind", "Passive"])
def test_float32_clients_get_no_false_certificate(method: str, data_dir: Path) -> None:
    dataset = load(data_dir / "cifar10.npz")
    batch = draw_batch(dataset, 64)
    network = mlp(
        dataset.features,
        dataset.classes,
        rng=np.random.default_rng([0, 0]),
        sample_shape=dataset.sample_shape,
    )
    design = PAPER_METHODS[method](batch.auxiliary)
    audit = gp.audit(network, batch.x, batch.y, design=design, dtype=torch.float32)
    assert audit.score.false_certificates == 0
    assert audit.score.repeats == 0
    assert audit.score.recovered > 0
