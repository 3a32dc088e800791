"""The conditions under which clients send updates, and what an audit must reach in each.

What a condition does not mention is as in the paper: two layers, cross-entropy, float64, a batch of
distinct samples, and a server that knows all of this and the batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp
from gradpeel.datasets import Batch, Dataset
from gradpeel.datasets.standard import STANDARD
from gradpeel.networks import mlp

__all__ = ["CONDITIONS", "PLAIN", "Condition", "Goal"]

PLAIN = "float64"
"""The paper's own condition."""

SOLITON = ("SD-Ind", "SD-Mir")
BOTH = ("SD-Ind", "Passive")
WIDTH = 256
Change = Callable[[nn.Sequential, np.random.Generator], nn.Sequential]


@dataclass(frozen=True)
class Goal:
    """What must come back of some batches.

    Attributes:
        methods: designs, by their names in the paper's table.
        batch_sizes: sizes of the batches.
        share: least number of recovered samples, relative to those the peeling bound reaches.
        margin: how many may be missing on top, as a share of the batch.
    """

    methods: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    share: float = 1.0
    margin: float = 0.0

    def reached(self, recovered: int, reachable: int, batch_size: int) -> bool:
        """Whether so many of the reachable samples are enough."""
        least = self.share * reachable - self.margin * batch_size
        # 0.95 times 20 need not be 19 to the last digit.
        return recovered >= least - 1e-9

    @property
    def words(self) -> str:
        """The goal as the table names it."""
        if not self.share:
            return "none false"
        if self.margin:
            return f"bound - {self.margin}"
        return "bound" if self.share == 1.0 else f"{self.share} bound"


def _unchanged(network: nn.Sequential, _: np.random.Generator) -> nn.Sequential:
    return network


@dataclass(frozen=True)
class Condition:
    """How a client departs from the paper's, and what of it the server knows.

    Attributes:
        name: what the table calls it.
        goals: on which batches it is measured, and what must come back of them.
        datasets: on which data sets.
        dtype: what the client computes in.
        noise: on the update, relative to the spread of each gradient.
        copies: share of the batch that is copies of other samples in it.
        knows_batch_size: whether the batch size is stated.
        knows_tail: whether it knows loss and tail.
        shows_size: whether the batch size is stated, or shown by what one sample weighs.
        loss: what the client minimises.
        tail: widths of further hidden layers.
        change: what else is different about the network.
        classes: number of classes, labels drawn at random; 0 for the data set's own.
        as_good_as: the condition in which no more samples of the same batch may come back.
    """

    name: str
    goals: tuple[Goal, ...]
    datasets: tuple[str, ...] = tuple(STANDARD)
    dtype: torch.dtype = torch.float64
    noise: float = 0.0
    copies: float = 0.0
    knows_batch_size: bool = True
    knows_tail: bool = True
    shows_size: bool = True
    loss: gp.Loss = gp.CrossEntropy()  # noqa: RUF009 - immutable
    tail: tuple[int, ...] = ()
    change: Change = _unchanged
    classes: int = 0
    as_good_as: str | None = None

    def goal(self, method: str, batch_size: int) -> Goal:
        """The goal for one design and batch size."""
        return next(
            goal for goal in self.goals if method in goal.methods and batch_size in goal.batch_sizes
        )

    def network(self, dataset: Dataset, neurons: int, rng: np.random.Generator) -> nn.Sequential:
        """The client's network, before the design."""
        built = mlp(
            dataset.features,
            self.classes or dataset.classes,
            hidden=(neurons, *self.tail),
            rng=rng,
            sample_shape=dataset.sample_shape,
        )
        return self.change(built, rng)

    def samples(
        self, batch: Batch, classes: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """The client's batch: (batch, *sample_shape), and what its loss compares with.

        Args:
            batch: as it was drawn from the data set.
            classes: number of classes of the data set.
            rng: draws copies and labels.
        """
        x, y = batch.x, batch.y
        classes = self.classes or classes
        if self.classes:
            y = torch.from_numpy(rng.integers(classes, size=len(y)))
        if self.copies:
            x, y = with_copies(x, y, classes, share=self.copies, rng=rng)
        if isinstance(self.loss, gp.MeanSquaredError):
            y = functional.one_hot(y, classes).double()
        if isinstance(self.loss, gp.BinaryCrossEntropy):
            y = torch.from_numpy(rng.integers(2, size=(len(y), classes))).double()
        return x, y


def with_copies(
    x: Tensor, y: Tensor, classes: int, *, share: float, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Replace a share of a batch by copies of other samples, every other one with another label."""
    order = rng.permutation(len(x))
    count = round(share * len(x))
    places, others = order[:count], order[count:]
    originals = rng.choice(others, size=count)
    x, y = x.clone(), y.clone()
    x[places] = x[originals]
    shift = rng.integers(1, classes, size=count) * (np.arange(count) % 2)
    y[places] = (y[originals] + torch.from_numpy(shift)) % classes
    return x, y


class Skip(nn.Module):
    """A block that adds what it computes to what it gets."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, values: Tensor) -> Tensor:
        """Any shape that the block keeps."""
        added: Tensor = values + self.block(values)
        return added


def _insert(
    network: nn.Sequential,
    rng: np.random.Generator,
    *,
    make: Callable[[np.random.Generator], nn.Module],
    behind: int = 2,
) -> nn.Sequential:
    """Put a module behind a hidden layer; the target is the first of them."""
    modules = list(network)
    relus = [at for at, module in enumerate(modules) if isinstance(module, nn.ReLU)]
    modules.insert(relus[behind - 1] + 1, make(rng))
    return nn.Sequential(*modules)


def _activate(
    network: nn.Sequential, _: np.random.Generator, *, make: Callable[[], nn.Module]
) -> nn.Sequential:
    """Replace every ReLU but the target's."""
    head, tail = list(network)[:3], list(network)[3:]
    return nn.Sequential(
        *head, *(make() if isinstance(module, nn.ReLU) else module for module in tail)
    )


def _settled_batch_norm(_: np.random.Generator) -> nn.Module:
    """A batch norm after training: with statistics of its own."""
    norm = nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    statistics = {
        "running_mean": torch.linspace(-0.5, 0.5, WIDTH),
        "running_var": torch.linspace(0.5, 2.0, WIDTH),
    }
    norm.load_state_dict(norm.state_dict() | statistics)
    return norm.eval()


def _residual(rng: np.random.Generator) -> nn.Module:
    return Skip(mlp(WIDTH, WIDTH, hidden=(WIDTH,), rng=rng, init="torch"))


def _precision() -> Iterator[Condition]:
    """Few digits, and noise."""
    yield Condition(PLAIN, (Goal(BOTH, (64, 128, 256), margin=0.01),))
    yield Condition(
        "float32",
        (Goal(SOLITON, (64, 128, 256, 512), 0.98), Goal(("Passive",), (64, 128), 0.85)),
        dtype=torch.float32,
    )
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        yield Condition(name, (Goal(BOTH, (64,), 0.0),), dtype=dtype)
    noises = (
        ("1e-8", (128, 256), 0.98),
        ("1e-6", (128, 256), 0.95),
        ("1e-4", (128,), 0.5),
        ("1e-3", (128,), 0.0),
        ("1e-2", (128,), 0.0),
    )
    for noise, sizes, share in noises:
        yield Condition(f"noise-{noise}", (Goal(SOLITON, sizes, share),), noise=float(noise))


def _batches() -> Iterator[Condition]:
    """Copies, and batches of unknown size."""
    for percent in (5, 20):
        goal = Goal(BOTH, (64, 128, 256))
        yield Condition(f"duplicates-{percent}", (goal,), copies=percent / 100)
    yield Condition(
        "unknown-batch",
        (Goal(BOTH, (64, 128, 256), margin=0.01),),
        knows_batch_size=False,
        as_good_as=PLAIN,
    )
    yield Condition(
        "unknown-batch-float32",
        (Goal(("SD-Ind",), (64, 128), 0.98),),
        dtype=torch.float32,
        knows_batch_size=False,
        as_good_as="float32",
    )


def _without_tail() -> Iterator[Condition]:
    """Tails that the server does not know, or cannot simulate; no batch size either."""
    goals = (Goal(BOTH, (64, 128, 256), margin=0.01),)
    unknown = partial(Condition, knows_batch_size=False, shows_size=False)
    yield unknown("unknown-tail", goals, knows_tail=False)
    yield unknown(
        "unknown-tail-float32",
        (Goal(SOLITON, (64, 128), 0.95),),
        dtype=torch.float32,
        knows_tail=False,
    )
    deep = partial(unknown, tail=(WIDTH,))
    yield deep("mse", goals, loss=gp.MeanSquaredError())
    yield deep("bce", goals, loss=gp.BinaryCrossEntropy())
    drop = partial(_insert, make=lambda _: nn.Dropout(0.5))
    yield deep("dropout", goals, change=drop)
    norm = partial(_insert, make=lambda _: nn.BatchNorm1d(WIDTH, dtype=torch.float64))
    yield deep("batch-norm", goals, change=norm)
    yield deep(
        "dropout-at-target",
        (Goal(BOTH, (64, 128, 256), 0.0),),
        change=partial(_insert, make=lambda _: nn.Dropout(0.5), behind=1),
    )


def _tails() -> Iterator[Condition]:
    """Tails that users have."""
    goals = (Goal(("SD-Ind",), (64,), margin=0.01),)
    known = partial(Condition, goals=goals, datasets=("cifar10",))
    for depth in (1, 2, 3, 4):
        for name, make in (("relu", nn.ReLU), ("gelu", nn.GELU), ("tanh", nn.Tanh)):
            yield known(
                f"tail-{name}-{depth}",
                tail=(WIDTH, 128, 64, 32)[:depth],
                change=partial(_activate, make=make),
            )
    blocks: dict[str, Callable[[np.random.Generator], nn.Module]] = {
        "layer-norm": lambda _: nn.LayerNorm(WIDTH, dtype=torch.float64),
        "residual": _residual,
        "batch-norm-eval": _settled_batch_norm,
    }
    for name, block in blocks.items():
        change = partial(_insert, make=block)
        yield known(f"tail-{name}", tail=(WIDTH,), change=change)
    for classes in (2, 10, 62, 100, 1000):
        yield known(f"classes-{classes}", classes=classes)


CONDITIONS = {
    condition.name: condition
    for family in (_precision, _batches, _without_tail, _tails)
    for condition in family()
}
"""All conditions by name."""
