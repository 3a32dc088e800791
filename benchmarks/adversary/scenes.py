"""One round that is made to fool a decoder, and the data it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.adversary.truth import Yardstick
from benchmarks.cells import load_cached
from gradpeel.networks import mlp
from gradpeel.update import Reduction

__all__ = ["Scene", "Setting", "Source", "honest", "network", "plain", "take"]

STATED = 0.6
"""Share of the scenes in which the update states its batch size, unless a family is about that."""


LARGEST = 32
"""Largest height and width of a picture."""


def _middle(pictures: NDArray[np.float64]) -> Tensor:
    """The middle of pictures that are too large; anything else as it is."""
    margin = (pictures.shape[1] - LARGEST) // 2
    if pictures.ndim < 3 or margin <= 0:
        return torch.from_numpy(pictures)
    part = slice(margin, margin + LARGEST)
    return torch.from_numpy(pictures[:, part, part])


@dataclass(frozen=True, eq=False)
class Source:
    """Where samples come from, each a flat row; shared by many rounds, so never changed in place.

    Attributes:
        x: (samples, features) what clients have.
        y: (samples,) their labels.
        other_x: (others, features) samples that no client has, to train networks on.
        other_y: (others,) their labels.
        classes: number of classes.
        shape: the shape of a sample before it was flattened.
        columns: whether each feature has a scale of its own.
    """

    x: Tensor
    y: Tensor
    other_x: Tensor
    other_y: Tensor
    classes: int
    shape: tuple[int, ...]
    columns: bool = False

    @classmethod
    @cache
    def load(cls, name: str, data_dir: Path | None) -> Source:
        """Load an embedded data set by name, or `<name>.npz` from a folder, once per process.

        Of pictures larger than `LARGEST` the middle is taken: rounds have to be small and many.
        """
        file = None if data_dir is None else data_dir / f"{name}.npz"
        dataset = load_cached(file if file is not None and file.exists() else name)
        x, other_x = _middle(dataset.x_train), _middle(dataset.x_test)
        return cls(
            x=x.flatten(1),
            y=torch.from_numpy(dataset.y_train),
            other_x=other_x.flatten(1),
            other_y=torch.from_numpy(dataset.y_test),
            classes=dataset.classes,
            shape=tuple(x.shape[1:]),
        )

    @property
    def features(self) -> int:
        """Numbers in one sample."""
        return self.x.shape[1]

    @cached_property
    def yardstick(self) -> Yardstick:
        """The unit of distances between samples."""
        return Yardstick.of(self.x, columns=self.columns)

    def map(self, change: Callable[[Tensor], Tensor], *, columns: bool = False) -> Source:
        """The same data with other features."""
        x, other_x = change(self.x), change(self.other_x)
        return replace(self, x=x, other_x=other_x, columns=columns)


@dataclass(frozen=True, eq=False)
class Setting:
    """What a family is given: data, sizes, and the source of all its draws."""

    source: Source
    neurons: int
    batch_size: int
    rng: np.random.Generator


def honest(model: nn.Module, scene: Scene) -> gp.Update:
    """The gradient of the batch, as an honest client computes it."""
    return gp.local_update(
        model, scene.x, scene.y, gp.Client(loss=scene.loss, reduction=scene.reduction)
    )


def _unchanged(update: gp.Update) -> gp.Update:
    return update


@dataclass(frozen=True, eq=False)
class Scene:
    """One round.

    Attributes:
        source: the data that the batch comes from; it gives the unit of distances.
        x: (batch, features) the client's samples, float64.
        y: what its loss compares with.
        model: the network it received, float64.
        stated: the batch size that the update states, right or wrong; None where it states none.
        loss: what the client minimises.
        knows_tail: whether the decoder knows loss and tail.
        reduction: whether the loss is the mean or the sum over the batch.
        compute: what the client computes, on its model in its dtype.
        alter: what happens to the update on its way.
        others: (others, features) samples of other batches that have a part in the update.
    """

    source: Source
    x: Tensor
    y: Tensor
    model: nn.Module
    stated: int | None
    loss: gp.Loss = gp.CrossEntropy()  # noqa: RUF009 - immutable
    knows_tail: bool = True
    reduction: Reduction = "mean"
    compute: Callable[[nn.Module, Scene], gp.Update] = honest
    alter: Callable[[gp.Update], gp.Update] = _unchanged
    others: Tensor | None = None

    def with_batch(self, x: Tensor, y: Tensor) -> Scene:
        """The same round on another batch; where its size is stated, the new one is."""
        return replace(self, x=x, y=y, stated=None if self.stated is None else len(x))


def network(
    setting: Setting,
    *,
    outputs: int | None = None,
    tail: tuple[int, ...] = (),
    init: str | None = None,
) -> nn.Sequential:
    """A fresh network: PyTorch's initialisation in three of four draws, or else the paper's."""
    rng = setting.rng
    drawn = "torch" if rng.random() < 0.75 else "paper"
    return mlp(
        setting.source.features,
        outputs or setting.source.classes,
        hidden=(setting.neurons, *tail),
        rng=rng,
        init="paper" if (init or drawn) == "paper" else "torch",
    )


def take(setting: Setting, pool: Tensor | None = None, count: int | None = None) -> Tensor:
    """Indices of distinct samples of the source, drawn from all of it or from a pool of indices."""
    indices = torch.arange(len(setting.source.x)) if pool is None else pool
    order = torch.from_numpy(setting.rng.permutation(len(indices)))
    return indices[order[: count or setting.batch_size]]


def plain(
    setting: Setting, chosen: Tensor | None = None, *, model: nn.Module | None = None
) -> Scene:
    """An ordinary round on an ordinary batch.

    Args:
        setting: what to draw from.
        chosen: (batch,) which samples; drawn from all of them if not given.
        model: the network; a fresh one if not given.
    """
    chosen = take(setting) if chosen is None else chosen
    model = network(setting) if model is None else model
    stated = len(chosen) if setting.rng.random() < STATED else None
    source = setting.source
    return Scene(source, source.x[chosen], source.y[chosen], model, stated)
