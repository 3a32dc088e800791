"""What the benchmark of the row cascade measures: audits, in suites.

- goals: batches of 64 and 128 on 1,000 neurons, all data sets, the paper's and PyTorch's start,
  inputs in [0, 1] and standardised, float64 and float32;
- large: batches of 256 on 1,000 neurons;
- wide: batches of 512 on 4,096 neurons;
- narrow: layers of 200, 400 and 2,000 neurons on Tiny-ImageNet, where earlier work on exact
  inversion (SPEAR) reports batches of up to 25;
- limits: batch size against width and number of classes; training, noise, deeper tails and nothing
  known of the tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import gradpeel as gp
from gradpeel.datasets.standard import STANDARD

STARTS = ("torch", "paper")
SCALINGS = ("standardised", "unit")
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
"""Batch sizes, relative to the number of neurons, at which limits are looked for."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One audit.

    Attributes:
        dataset: name of the data set.
        scaling: "unit" for inputs in [0, 1], "standardised" for mean 0 and deviation 1.
        start: of the network: the paper's, PyTorch's, or the paper's with a layer that a design
            shapes, by the design's name.
        batch_size: samples in the batch, drawn by the seed.
        neurons: of the attacked layer.
        dtype: what the client computes in.
        seed: draws network and batch.
        setting: what else is special: "plain", or another of `SETTINGS`.
    """

    dataset: str
    scaling: str
    start: str
    batch_size: int
    neurons: int = 1000
    dtype: str = "float64"
    seed: int = 0
    setting: str = "plain"


@dataclass(frozen=True)
class Setting:
    """What is special about a round.

    Attributes:
        tail: widths of further hidden layers.
        steps: training steps before the round.
        client: how the client trains.
        knows_tail: the decoder knows loss and tail.
    """

    tail: tuple[int, ...] = ()
    steps: int = 0
    client: gp.Client = gp.Client()  # noqa: RUF009 - immutable
    knows_tail: bool = True


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "plain": Setting(),
        "hidden 100": Setting(tail=(100,)),
        "hidden 500, 100": Setting(tail=(500, 100)),
        "nothing known of the tail": Setting(knows_tail=False),
        "trained 10 steps": Setting(steps=10),
        "trained 100 steps": Setting(steps=100),
        "trained 1000 steps": Setting(steps=1000),
        "noise 1e-6": Setting(client=gp.Client(noise=1e-6)),
        "noise 1e-4": Setting(client=gp.Client(noise=1e-4)),
        "noise 1e-3": Setting(client=gp.Client(noise=1e-3)),
    }
)


def goals(seeds: int) -> Iterator[Cell]:
    """Batches of 64 and 128 on 1,000 neurons."""
    for size in (64, 128):
        for dtype in ("float64", "float32"):
            for dataset in STANDARD:
                yield from _cells(dataset, size, seeds, dtype=dtype)


def large(seeds: int) -> Iterator[Cell]:
    """Batches as large as they can be."""
    for dataset in STANDARD:
        yield from _cells(dataset, 256, seeds)


def wide(seeds: int) -> Iterator[Cell]:
    """Large batches on a wide layer."""
    for scaling in SCALINGS:
        for dataset in ("mnist", "fashion_mnist", "cifar10"):
            yield from _cells(
                dataset, 512, seeds, starts=("torch",), scalings=(scaling,), neurons=4096
            )


def narrow(seeds: int) -> Iterator[Cell]:
    """The widths of earlier work on exact inversion."""
    for neurons, sizes in (
        (200, (8, 16, 20, 25, 32, 48)),
        (400, (25, 50, 100)),
        (2000, (100, 200)),
    ):
        for size in sizes:
            for dataset in ("imagenet", "cifar10"):
                yield from _cells(
                    dataset,
                    size,
                    seeds,
                    starts=("torch",),
                    scalings=("standardised",),
                    neurons=neurons,
                    dtype="float32",
                )


def limits(seeds: int) -> Iterator[Cell]:
    """Where it stops."""
    fixed = partial(_cells, starts=("torch",), scalings=("standardised",))
    for neurons in (250, 500, 1000):
        for share in SHARES if neurons < 1000 else SHARES[:-2]:
            for dataset in ("mnist", "cifar10"):
                yield from fixed(dataset, round(share * neurons), seeds, neurons=neurons)
    for dataset in ("emnist", "cifar100", "imagenet"):
        for share in SHARES:
            yield from fixed(dataset, round(share * 500), seeds, neurons=500)
    for setting in SETTINGS:
        for dataset in ("mnist", "cifar10", "harus"):
            for dtype in ("float64", "float32"):
                yield from fixed(dataset, 64, seeds, dtype=dtype, setting=setting)


SUITES: Mapping[str, Callable[[int], Iterator[Cell]]] = MappingProxyType(
    {"goals": goals, "large": large, "wide": wide, "narrow": narrow, "limits": limits}
)


def _cells(
    dataset: str,
    batch_size: int,
    seeds: int,
    *,
    starts: Iterable[str] = STARTS,
    scalings: Iterable[str] = SCALINGS,
    neurons: int = 1000,
    dtype: str = "float64",
    setting: str = "plain",
) -> Iterator[Cell]:
    for start in starts:
        for scaling in scalings:
            for seed in range(seeds):
                yield Cell(
                    dataset=dataset,
                    scaling=scaling,
                    start=start,
                    batch_size=batch_size,
                    neurons=neurons,
                    dtype=dtype,
                    seed=seed,
                    setting=setting,
                )
