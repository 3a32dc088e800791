"""The gallery: every network is read where it should be, without false certificates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import gallery
from benchmarks.gallery_networks import IN_FLOAT64, NETWORKS, NOT_SIMULATED
from gradpeel.target import split

# Every network with the layer that is read, its neurons and inputs, and what comes back.
READ = {
    "FedAvg CNN": ("7", 512, 3136, "features"),
    "Flower quickstart": ("7", 120, 400, "features"),
    "LeNet-5": ("7", 120, 400, "features"),
    "VGG-11": ("22", 512, 512, "features"),
    "ResNet-18 head": ("1", 256, 512, "features"),
    "vision transformer": ("encoder.layers.0.linear1", 1024, 256, "features"),
    "text classifier": ("1", 256, 128, "features"),
    "tabular": ("layers.0", 200, 40, "features"),
    "autoencoder": ("1", 256, 784, "input"),
    "regression": ("0", 256, 561, "input"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of the shapes that the networks take, drawn at random."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, shape in (("mnist", (28, 28)), ("cifar10", (32, 32, 3)), ("harus", (561,))):
        x = rng.random((12, *shape), dtype=np.float32)
        y = np.arange(12) % 6
        np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder


def test_every_network_is_in_the_table() -> None:
    assert READ.keys() == NETWORKS.keys()
    found = list(gallery.cells("gallery", 1))
    assert len(found) == len(NETWORKS) * len(gallery.BATCH_SIZES) == 50


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_split_at_its_layer(name: str) -> None:
    torch.manual_seed(0)
    target = split(NETWORKS[name][1](), share=True)
    assert (target.layer, target.neurons, target.features, target.front.space) == READ[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("size", [1, 3])
def test_every_network_is_audited(name: str, size: int, data: Path) -> None:
    row = gallery.measure(gallery.Cell(network=name, batch_size=size), data)
    assert row.cell == gallery.Cell(network=name, batch_size=size)
    assert (row.layer, row.neurons, row.features, row.space) == READ[name]
    assert row.rows == size * (16 if name == "vision transformer" else 1)
    assert row.false == 0
    # A single sample can be read from any network, whether or not that can be proven.
    assert size > 1 or row.readable == row.rows
    assert len(next(gallery.tabulate([row]))) == len(gallery.TITLES)
    assert "false certificates: 0" in list(gallery.findings([row]))
    assert name in str(row)


@pytest.mark.parametrize("name", [name for name in NOT_SIMULATED if name.startswith("256")])
def test_steps_behind_the_layer_are_not_simulated(name: str) -> None:
    assert (split(NOT_SIMULATED[name][1]()).tail.unknown is None) == ("nothing" in name)


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_networks_in_float64_are_the_same(name: str) -> None:
    torch.manual_seed(0)
    exact = IN_FLOAT64[name][1]().state_dict()
    torch.manual_seed(0)
    usual = NETWORKS[name.removesuffix(", float64")][1]().state_dict()
    assert exact.keys() == usual.keys()
    assert all(torch.equal(exact[key], usual[key].double()) for key in usual)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "bound"), [("Flower quickstart", 128, 8), ("vision transformer", 8, 76)]
)
def test_float32_is_why_two_cells_miss_the_bound(
    name: str, size: int, bound: int, data_dir: Path
) -> None:
    usual = gallery.measure(gallery.Cell(network=name, batch_size=size), data_dir)
    assert (usual.bound, usual.misses, usual.false) == (bound, True, 0)
    exact = gallery.measure(gallery.Cell(network=f"{name}, float64", batch_size=size), data_dir)
    assert (exact.bound, exact.recovered, exact.false) == (bound, bound, 0)


def test_fewer_than_the_bound_is_named() -> None:
    row = gallery.Row(
        network="LeNet-5", batch_size=8, data="mnist", layer="7", neurons=1, features=1,
        space="features", rows=8, bound=8, recovered=7, readable=8, false=0, seconds=1.0,
    )  # fmt: skip
    assert row.misses
    assert "fewer than the peeling bound less 0.02: LeNet-5 B=8" in list(gallery.findings([row]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "codes"), [("text classifier", 40), ("tabular", 4)])
def test_tokens_and_categories_are_exact_where_features_are(name: str, codes: int) -> None:
    torch.manual_seed(0)
    data, make = NETWORKS[name]
    model, (x, y) = make(), gallery.draw(data, 8, 0, Path())
    found = gallery.audited(gallery.Cell(network=name, batch_size=8), model, x, y).invert()
    assert found.likeness is not None
    assert bool(found.determined.all())
    true = x[found.likeness.samples][:, :codes]
    given = found.inputs[:, :codes]
    assert len(given) == 8
    assert torch.equal(given, true if found.ordered else true.sort(1).values)
