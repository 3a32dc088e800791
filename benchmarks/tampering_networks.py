"""Honest and tampered networks for `benchmarks.tampering`, and the batches they are judged on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.datasets import load
from gradpeel.designs import (
    QBI,
    Construction,
    Design,
    Layer,
    Pairs,
    SolitonData,
    SolitonFree,
    TrapWeights,
    Tuned,
    TunedFree,
)

__all__ = [
    "CALIBRATION",
    "CHECKPOINTS",
    "LATE_CHECKPOINTS",
    "LONGER",
    "MEASURED",
    "Judged",
    "Pool",
    "first_layer",
    "honest",
    "load_pool",
    "tampered",
]

CALIBRATION = ("mnist", "emnist", "cifar10")
MEASURED = ("fashion_mnist", "cifar100", "imagenet", "harus")
LONGER = ("fashion_mnist", "cifar100", "harus")
CHECKPOINTS = (0, 3, 10, 30, 60, 120)
LATE_CHECKPOINTS = (1000, 3000)
BATCH_SIZES = (64, 128, 256, 512)
SCALES = (0.5, 0.8, 0.9, 0.95, 0.99)
STEP_SIZE = 32

_Optimiser = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
OPTIMISERS: dict[str, _Optimiser] = {
    "SGD .1": lambda p: torch.optim.SGD(p, 0.1),
    "momentum .01": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9),
    "Adam 1e-3": lambda p: torch.optim.Adam(p, 1e-3),
    "Adam 5e-3": lambda p: torch.optim.Adam(p, 5e-3),
    "AdamW 1e-3": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.05),
}
INITS = ("torch", "kaiming", "xavier", "gaussian")


@dataclass(frozen=True, eq=False)
class Pool:
    """A data set in one scaling, flat and in float32; training and client's data are apart."""

    data: str
    scaling: str
    x_train: Tensor
    y_train: Tensor
    x_client: Tensor
    y_client: Tensor
    classes: int

    @property
    def neurons(self) -> int:
        """Width of its networks: rows of Tiny ImageNet are long."""
        return 300 if self.x_train.shape[1] < 10_000 else 100


@dataclass(frozen=True, eq=False)
class Judged:
    """A network, the batch it is judged on, and what both are."""

    pool: Pool
    network: int
    kind: str
    weights: str
    step: int
    batch: str
    model: nn.Sequential
    x: Tensor
    y: Tensor


def load_pool(data: str, scaling: str, data_dir: Path) -> Pool:
    """Load a data set; "standard" is to mean 0 and deviation 1 over pixels, or by feature."""
    found = load(data, data_dir=data_dir)
    train, client = (torch.from_numpy(x).float().flatten(1) for x in (found.x_train, found.x_test))
    if scaling == "standard":
        over = None if found.is_image else 0
        mean = train.mean() if over is None else train.mean(over)
        deviation = train.std() if over is None else train.std(over).clamp(min=0.01)
        train, client = (train - mean) / deviation, (client - mean) / deviation
    labels = (torch.from_numpy(y) for y in (found.y_train, found.y_test))
    return Pool(data, scaling, train, next(labels), client, next(labels), found.classes)


def honest(
    pool: Pool, *, runs: int, fresh: int, seed: int, checkpoints: Sequence[int] = CHECKPOINTS
) -> Iterator[Judged]:
    """Networks of a few trainings, at every checkpoint, and ones that were not trained."""
    rng = np.random.default_rng([seed, 1])
    torch.manual_seed(seed)
    number = 0
    for _ in range(fresh):
        init = INITS[number % len(INITS)]
        model = _network(pool, init, int(rng.choice([100, pool.neurons])))
        yield from _on_batches(pool, model, rng, network=number, kind=f"honest, {init}")
        number += 1
    for run in range(runs):
        init = INITS[int(rng.integers(len(INITS)))]
        name = list(OPTIMISERS)[run % len(OPTIMISERS)]
        model = _network(pool, init, int(rng.choice([100, pool.neurons])))
        optimiser = OPTIMISERS[name](model.parameters())
        order = torch.from_numpy(rng.permutation(len(pool.x_train)))
        if run % 3 == 2:  # the clients of a round hold few classes each
            order = pool.y_train.argsort(stable=True)
        for step in range(checkpoints[-1] + 1):
            if step in checkpoints:
                if not all(bool(p.isfinite().all()) for p in model.parameters()):
                    break
                kind = f"honest, {init}, {name}"
                yield from _on_batches(pool, model, rng, network=number, kind=kind, step=step)
                number += 1
            chosen = order.roll(-step * STEP_SIZE)[:STEP_SIZE]
            optimiser.zero_grad()
            outputs = model(pool.x_train[chosen])
            nn.functional.cross_entropy(outputs, pool.y_train[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def tampered(pool: Pool, *, seed: int) -> Iterator[Judged]:
    """Every design, made for every batch size, on batches of that size."""
    rng = np.random.default_rng([seed, 2])
    torch.manual_seed(seed)
    number = 0
    for size in BATCH_SIZES:
        chosen = rng.permutation(len(pool.x_train))[:size]
        auxiliary = pool.x_train[torch.from_numpy(chosen)].double()
        kinds: tuple[Construction, ...] = ("independent", "mirrored")
        for weights in kinds:
            for name, design in _designs(weights, auxiliary).items():
                model = _network(pool, "xavier", pool.neurons)
                first = first_layer(model)
                layer = design.shape(
                    Layer(first.weight.detach().double(), first.bias.detach().double()),
                    batch_size=size,
                    rng=rng,
                    front=nn.Flatten(),
                )
                with torch.no_grad():
                    first.weight.copy_(layer.weight)
                    first.bias.copy_(layer.bias)
                yield from _on_batches(
                    pool, model, rng, network=number, kind=name, weights=weights, size=size
                )
                number += 1


def _designs(weights: Construction, auxiliary: Tensor) -> dict[str, Design]:
    found: dict[str, Design] = {
        **{f"trap weights {scale:g}": TrapWeights(scale, weights) for scale in SCALES},
        "soliton-free": SolitonFree(weights),
        "soliton-data": SolitonData(auxiliary, weights),
        "tuned-free": TunedFree(weights),
        "tuned": Tuned(auxiliary, weights),
    }
    return found if weights == "mirrored" else {**found, "qbi": QBI(), "pairs": Pairs(auxiliary)}


def first_layer(model: nn.Sequential) -> nn.Linear:
    """The layer that a server would tamper with."""
    return cast("nn.Linear", model[0])


def _network(pool: Pool, init: str, neurons: int) -> nn.Sequential:
    first = nn.Linear(pool.x_train.shape[1], neurons)
    last = nn.Linear(neurons, pool.classes)
    if init != "torch":
        nn.init.zeros_(first.bias)
    if init == "kaiming":
        nn.init.kaiming_normal_(first.weight)
    if init == "xavier":
        nn.init.xavier_uniform_(first.weight)
    if init == "gaussian":
        nn.init.normal_(first.weight, 0.0, 0.5)
        nn.init.xavier_uniform_(last.weight)
    return nn.Sequential(first, nn.ReLU(), last)


def _on_batches(
    pool: Pool,
    model: nn.Sequential,
    rng: np.random.Generator,
    *,
    network: int,
    kind: str,
    weights: str = "",
    step: int = 0,
    size: int | None = None,
) -> Iterator[Judged]:
    """The network on a batch of all classes, and on one of few."""
    classes = int(rng.integers(1, 3))
    some = rng.choice(np.unique(pool.y_client.numpy()), classes, replace=False)
    few = np.flatnonzero(np.isin(pool.y_client.numpy(), some))
    wanted = size or int(rng.choice(BATCH_SIZES))
    for batch, among in (("all classes", np.arange(len(pool.x_client))), ("1 or 2 classes", few)):
        chosen = torch.from_numpy(rng.permutation(among)[:wanted])
        x, y = pool.x_client[chosen], pool.y_client[chosen]
        yield Judged(pool, network, kind, weights, step, batch, model, x, y)
