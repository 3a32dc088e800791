r"""A plan: which audits a sweep runs.

It names data sets, designs, weight constructions, batch sizes, clients, widths of the target,
tails, dtypes, noise, defences, local training, effort and seeds; the cells are all their
combinations. Mistakes in a plan are found when it is made or, if the data is needed to find them,
before the first cell runs.

Example:
    >>> plan = Plan(datasets=["digits"], designs=["passive", "soliton-data"], batch_sizes=[64, 128])
    >>> print(*plan.cells(), sep="\n")
    digits Passive B=64 N=1000 seed 0
    digits Passive B=128 N=1000 seed 0
    digits SD-Ind B=64 N=1000 seed 0
    digits SD-Ind B=128 N=1000 seed 0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Protocol

from gradpeel.checks import DTYPES
from gradpeel.datasets import Dataset
from gradpeel.defences.options import NONE, parse, spell
from gradpeel.designs import (
    DesignName,
    DesignOptions,
    InitName,
    RobustSoliton,
    TrapWeights,
    WeightsName,
)
from gradpeel.errors import GradpeelError, InputError
from gradpeel.sweeps.cell import Cell
from gradpeel.training import LocalTraining

__all__ = ["Plan", "Source"]

MOST_CELLS = 1_000_000
LOCAL_KEYS = ("local_steps", "local_epochs", "local_batch_sizes")
DTYPE_NAMES = tuple(str(dtype).removeprefix("torch.") for dtype in DTYPES)


class Source(Protocol):
    """Where a plan was written down."""

    def place(self, key: str, value: object) -> str:
        """Where the key, or the value in it, stands: "plan.toml, line 3: "."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid of audits.

    Attributes:
        datasets: names of data sets, or paths of files (`.npz`, `.csv`, `.parquet`).
        designs: how the server sets the target: passive, trap-weights, soliton-free, soliton-data,
            tuned, tuned-free, qbi, pairs.
        weights: weight constructions; a design that has none, such as passive, runs once.
        batch_sizes: samples in each client's batch.
        clients: numbers of clients whose updates are added up (secure aggregation).
        neurons: widths of the target.
        tails: what follows the target, each a list of widths of further hidden layers.
        dtypes: the dtypes in which the client computes.
        noises: standard deviations of noise on the update, relative to each gradient's own.
        defences: what clients do to their updates, such as "clip:1+noise:0.01"; see
            `gradpeel.defences.parse`.
        lrs: learning rates of local training; 0 for none, the gradient of one batch (FedSGD).
        local_steps: numbers of local steps.
        local_epochs: how often the client goes through its data, instead of numbers of steps; once
            if neither is given.
        local_batch_sizes: samples per local step; all of them if not given.
        efforts: how long the row cascade searches for samples that no neuron isolates; 0 for
            peeling alone.
        seeds: one audit for each; a number n stands for 0..n-1.
        shuffle: whether the seed also draws which samples form the batch; otherwise they are the
            first training samples, as in the paper's script.
        momentum: of local training.
        weight_decay: of local training.
        init: initialisation of the network with passive: "paper" or "torch".
        scale: factor on positive weights with trap-weights.
        soliton: (c, delta) of the soliton designs.
        image_size: height and width of ImageNet's images; 64 by default.

    Raises:
        InputError: a value breaks a rule; the message names key, value and rule, and the line where
            the plan was read from a file.
    """

    datasets: Sequence[str]
    designs: Sequence[str]
    batch_sizes: Sequence[int]
    clients: Sequence[int] = (1,)
    weights: Sequence[str] = ("independent",)
    neurons: Sequence[int] = (1000,)
    tails: Sequence[Sequence[int]] = ((),)
    dtypes: Sequence[str] = ("float64",)
    noises: Sequence[float] = (0.0,)
    defences: Sequence[str] = (NONE,)
    lrs: Sequence[float] = (0.0,)
    local_steps: Sequence[int] | None = None
    local_epochs: Sequence[int] | None = None
    local_batch_sizes: Sequence[int] | None = None
    efforts: Sequence[float] = (0.0,)
    seeds: int | Sequence[int] = 1
    shuffle: bool = True
    momentum: float = 0.0
    weight_decay: float = 0.0
    init: str = "paper"
    scale: float = 0.99
    soliton: Sequence[float] = (0.05, 0.4)
    image_size: int | None = None
    source: Source | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("datasets", self._texts("datasets", None))
        self._set("designs", self._texts("designs", tuple(DesignName)))
        self._set("weights", self._texts("weights", tuple(WeightsName)))
        self._set("dtypes", self._texts("dtypes", DTYPE_NAMES))
        self._set("batch_sizes", self._list("batch_sizes", _is_positive, "positive integers"))
        for key in ("clients", "neurons"):
            self._set(key, self._list(key, _is_positive, "positive integers"))
        rule = "lists of positive integers, such as [[], [256, 128]]"
        self._set("tails", tuple(tuple(tail) for tail in self._list("tails", _is_tail, rule)))
        for key in ("noises", "lrs", "efforts"):
            self._set(key, self._list(key, _is_size, "finite numbers of at least 0"))
        self._set("defences", self._spelt_defences())
        self._set("seeds", self._spelt_out_seeds())
        self._check_local_training()
        self._check_size()
        if not isinstance(self.shuffle, bool):
            raise self.blame("shuffle", self.shuffle, "expected true or false")
        self._one_of("init", tuple(InitName))
        self._check_design_settings()
        if self.image_size is not None and not _is_positive(self.image_size):
            raise self.blame("image_size", self.image_size, "expected a positive integer")

    def cells(self) -> list[Cell]:
        """All audits, one data set after the other, in the order of the plan."""
        return [
            Cell(
                dataset=dataset,
                **_settings(options),
                neurons=neurons,
                tail=tuple(tail),
                dtype=dtype,
                noise=float(noise) + 0.0,  # -0.0 is the same noise as 0.0
                defence=defence,
                **local,
                effort=float(effort) + 0.0,
                batch_size=size,
                clients=clients,
                shuffle=self.shuffle,
                seed=seed,
            )
            for dataset, options, neurons, tail, dtype, (noise, defence), local, effort, (
                clients,
                size,
            ), seed in product(
                self.datasets,
                self._options(),
                self.neurons,
                self.tails,
                self.dtypes,
                list(product(self.noises, self.defences)),
                self._local_trainings(),
                self.efforts,
                list(product(self.clients, self.batch_sizes)),
                self.seeds,  # type: ignore[arg-type]
            )
        ]

    def check_against(self, name: str, dataset: Dataset) -> None:
        """Refuse batches that a data set cannot fill.

        Raises:
            InputError: a batch size is beyond the training samples.
        """
        there = len(dataset.x_train)
        for clients, size in product(self.clients, self.batch_sizes):
            if clients * size > there:
                many = "" if clients == 1 else f", too few for {clients} clients"
                rule = f"{name} has {there} training samples{many}"
                raise self.blame("batch_sizes", size, rule)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            item.name: getattr(self, item.name) for item in fields(self) if item.name != "source"
        }

    def blame(self, key: str, value: object, rule: str) -> InputError:
        """An error about a key of this plan, or one value in it, with the place where it stands."""
        place = "" if self.source is None else self.source.place(key, value)
        return InputError(f"{place}{key}={value!r}: {rule}")

    def _options(self) -> Iterator[DesignOptions]:
        for design in map(DesignName, self.designs):
            if design is DesignName.PASSIVE:
                yield DesignOptions(design, init=InitName(self.init))
                continue
            has, (c, delta) = DesignOptions(design).has, self.soliton
            for weights in map(WeightsName, self.weights) if has("weights") else [None]:
                yield DesignOptions(
                    design,
                    weights,
                    scale=float(self.scale) if has("scale") else None,
                    soliton=(float(c), float(delta)) if has("soliton") else None,
                )

    def _local_trainings(self) -> list[dict[str, Any]]:
        """Settings of local training; without a learning rate there is one, with none."""
        found: list[dict[str, Any]] = []
        if any(lr == 0 for lr in self.lrs):
            found.append({})
        rates = [float(lr) for lr in self.lrs if lr]
        times: list[tuple[str, int | None]] = [("local_steps", n) for n in self.local_steps or ()]
        times += [("local_epochs", n) for n in self.local_epochs or ()]
        sizes = self.local_batch_sizes or (None,)
        for lr, (name, count), size in product(rates, times or [("local_epochs", None)], sizes):
            more = {"momentum": float(self.momentum), "weight_decay": float(self.weight_decay)}
            found.append({"lr": lr, **more, name: count, "local_batch_size": size})
        return found

    def _check_local_training(self) -> None:
        for key in LOCAL_KEYS:
            if getattr(self, key) is not None:
                self._set(key, self._list(key, _is_positive, "positive integers"))
        if self.local_steps is not None and self.local_epochs is not None:
            rule = "expected only one of local_steps and local_epochs"
            raise self.blame("local_epochs", self.local_epochs, rule)
        for key in (*LOCAL_KEYS, "momentum", "weight_decay"):
            if getattr(self, key) and not any(self.lrs):
                rule = "only a client with a learning rate (lrs) trains locally"
                raise self.blame(key, getattr(self, key), rule)
        for key, rule in (
            ("momentum", "expected a number from 0 to below 1"),
            ("weight_decay", "expected a number of at least 0"),
        ):
            try:
                LocalTraining(None, **{key: getattr(self, key)})
            except InputError:
                raise self.blame(key, getattr(self, key), rule) from None

    def _spelt_defences(self) -> tuple[str, ...]:
        """The defences as cells have them: one spelling for each."""
        found = []
        for text in self._texts("defences", None):
            try:
                found.append(spell(parse(text)))
            except InputError as error:
                raise self.blame("defences", text, str(error)) from None
        return tuple(dict.fromkeys(found))

    def _spelt_out_seeds(self) -> tuple[int, ...]:
        if _is_positive(self.seeds) and self.seeds <= MOST_CELLS:  # type: ignore[operator]
            return tuple(range(int(self.seeds)))  # type: ignore[arg-type]
        return self._list("seeds", _is_seed, "integers of at least 0; or a number of seeds")

    def _check_size(self) -> None:
        """Reject a grid that is too large, before it is spelled out."""
        grid = (self.datasets, self.designs, self.weights, self.batch_sizes, self.neurons)
        more = (
            self.clients,
            self.tails,
            self.dtypes,
            self.noises,
            self.defences,
            self.lrs,
            self.efforts,
            self.seeds,
        )
        local = [getattr(self, key) or (None,) for key in LOCAL_KEYS]
        size = math.prod(map(len, (*grid, *more, *local)))  # type: ignore[arg-type]
        if size > MOST_CELLS:
            rule = f"the grid has {size} cells: expected at most {MOST_CELLS}"
            raise self.blame("seeds", len(self.seeds), rule)  # type: ignore[arg-type]

    def _set(self, key: str, value: object) -> None:
        # Lists become tuples once they are checked, so that a plan cannot change later.
        object.__setattr__(self, key, value)

    def _list(self, key: str, is_right: Any, rule: str) -> tuple[Any, ...]:  # noqa: ANN401
        values = getattr(self, key)
        if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
            raise self.blame(key, values, f"expected a list ({rule})")
        if not values:
            raise self.blame(key, values, "expected at least one")
        seen: set[str] = set()
        for value in values:
            if not is_right(value):
                raise self.blame(key, value, f"expected {rule}")
            if repr(value) in seen:
                raise self.blame(key, value, "expected each only once")
            seen.add(repr(value))
        return tuple(values)

    def _texts(self, key: str, known: tuple[str, ...] | None) -> tuple[str, ...]:
        rule = "names" if known is None else f"one of {', '.join(known)}"
        return self._list(
            key, lambda value: isinstance(value, str) and (known is None or value in known), rule
        )

    def _one_of(self, key: str, known: tuple[str, ...]) -> None:
        if getattr(self, key) not in known:
            raise self.blame(key, getattr(self, key), f"expected one of {', '.join(known)}")

    def _check_design_settings(self) -> None:
        """Let the designs judge their own settings."""
        if not _is_number(self.scale):
            raise self.blame("scale", self.scale, "expected a number above 0 and at most 1")
        pair: object = self.soliton
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(map(_is_number, self.soliton)):
            raise self.blame("soliton", self.soliton, "expected two numbers [c, delta]")
        self._set("soliton", tuple(self.soliton))
        for key, make in (
            ("scale", lambda: TrapWeights(self.scale)),
            ("soliton", lambda: RobustSoliton(*self.soliton)),
        ):
            try:
                make()
            except GradpeelError as error:
                raise self.blame(key, getattr(self, key), str(error)) from None


def _settings(options: DesignOptions) -> dict[str, Any]:
    return {
        "design": options.design.value,
        "weights": None if options.weights is None else options.weights.value,
        "init": None if options.init is None else options.init.value,
        "scale": options.scale,
        "soliton": options.soliton,
    }


def _is_integer(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_positive(value: object) -> bool:
    return _is_integer(value, 1, 2**31)


def _is_seed(value: object) -> bool:
    return _is_integer(value, 0, 2**63 - 1)


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) < 1e300  # type: ignore[arg-type]


def _is_size(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _is_tail(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_positive, value))
