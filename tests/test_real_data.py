"""A floor for attack strength on real data, and zero false certificates: the decoder's promise.

A weaker attack "still shows images"; only a number notices. The floors are the peeling bound.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import rows
from benchmarks.audits import Cell, faults, measure
from benchmarks.clients import CONDITIONS
from benchmarks.row_suites import Cell as RowCell
from gradpeel.datasets import load
from gradpeel.sweeps import Cell as SweepCell
from gradpeel.sweeps import measure as measure_cell

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


# One cell or two of each condition that users have; `benchmarks.conditions` measures all of them.
CONDITIONED = [
    Cell("cifar10", "SD-Ind", 128, 0, "float32"),
    Cell("mnist", "SD-Mir", 256, 0, "float32"),
    Cell("cifar10", "Passive", 64, 0, "float32"),
    Cell("cifar10", "SD-Ind", 128, 0, "noise-1e-8"),
    Cell("fashion_mnist", "SD-Ind", 128, 0, "noise-1e-6"),
    Cell("fashion_mnist", "SD-Ind", 128, 0, "noise-1e-4"),
    Cell("mnist", "SD-Ind", 128, 0, "noise-1e-2"),
    Cell("cifar10", "SD-Ind", 128, 0, "duplicates-20"),
    Cell("fashion_mnist", "Passive", 64, 0, "duplicates-5"),
    Cell("cifar10", "SD-Ind", 128, 0, "unknown-batch"),
    Cell("fashion_mnist", "Passive", 64, 0, "unknown-batch"),
    Cell("cifar10", "SD-Ind", 128, 0, "unknown-tail"),
    Cell("cifar10", "Passive", 64, 0, "unknown-tail"),
    Cell("mnist", "SD-Ind", 128, 0, "unknown-tail-float32"),
    Cell("cifar10", "SD-Ind", 128, 0, "mse"),
    Cell("mnist", "SD-Ind", 128, 0, "bce"),
    Cell("fashion_mnist", "Passive", 64, 0, "dropout"),
    Cell("fashion_mnist", "Passive", 64, 0, "batch-norm"),
    Cell("cifar10", "SD-Ind", 64, 0, "tail-relu-2"),
    Cell("cifar10", "SD-Ind", 64, 0, "tail-gelu-4"),
    Cell("cifar10", "SD-Ind", 64, 0, "classes-1000"),
]


@pytest.mark.parametrize("cell", CONDITIONED, ids=str)
def test_conditions_that_users_have(cell: Cell, data_dir: Path) -> None:
    condition = CONDITIONS[cell.condition]
    row = measure(cell, data_dir, neurons=1000)
    assert not any(faults([row]).values())
    goal = condition.goal(cell.method, cell.batch_size)
    assert goal.reached(row.recovered, row.reachable, cell.batch_size)
    assert row.batch_size_found == (cell.batch_size if condition.shows_size else 0)


def test_a_copy_that_weighs_less_than_the_noise_is_not_counted(data_dir: Path) -> None:
    """One sample here is predicted wrong with p = 1e-7 left for its label.

    A copy of it that has the predicted label would change its gradient by as much as the errors of
    fourteen rounds do.
    """
    cell = SweepCell(
        dataset="cifar10",
        design="trap-weights",
        weights="independent",
        scale=0.99,
        batch_size=256,
        seed=2,
    )
    found, _ = measure_cell(cell, load(data_dir / "cifar10.npz"))
    assert found.wrong_copies == found.wrong_labels == found.false_certificates == 0
    assert found.recovered >= found.reachable - 3


ROWS = [
    RowCell(dataset="cifar10", scaling="standardised", start="torch", batch_size=128),
    RowCell(
        dataset="fashion_mnist",
        scaling="standardised",
        start="torch",
        batch_size=64,
        dtype="float32",
    ),
    RowCell(dataset="harus", scaling="standardised", start="paper", batch_size=64),
    RowCell(dataset="imagenet", scaling="standardised", start="torch", batch_size=25, neurons=200),
    RowCell(dataset="mnist", scaling="unit", start="paper", batch_size=128),
]


@pytest.mark.parametrize("cell", ROWS, ids=lambda cell: f"{cell.dataset} {cell.batch_size}")
def test_batches_in_which_hardly_any_neuron_stands_alone(cell: RowCell, data_dir: Path) -> None:
    row = rows.measure(cell, data_dir)
    assert row.bound < 0.1 * cell.batch_size
    assert row.recovered == cell.batch_size
    assert row.by_rows > 0.9 * cell.batch_size
    assert row.false == 0


def test_no_row_is_lost_to_roundings(data_dir: Path) -> None:
    # Two of them were, and with them all samples that peeling does not reach.
    cell = RowCell(dataset="mnist", scaling="unit", start="torch", batch_size=64, seed=2)
    row = rows.measure(cell, data_dir)
    assert (row.recovered, row.by_rows, row.false) == (64, 64 - row.bound, 0)
