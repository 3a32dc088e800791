"""Small rounds of federated learning for the tests, made in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradpeel import Client
from gradpeel.client import local_update
from gradpeel.decoder import Recovery
from gradpeel.exposure import Exposure, exposure
from gradpeel.update import Reduction, Update


def first_is_fast(values: Iterable[object]) -> list[object]:
    """Parameters for a test that is slow but for the first of them."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in others)]


@dataclass(frozen=True, repr=False)
class SmallRound:
    """A model, a batch, and what a client would send."""

    model: nn.Sequential
    x: Tensor
    y: Tensor
    update: Update

    @property
    def classes(self) -> int:
        return int(self.model(self.x[:1].to(self.update.dtype)).shape[1])

    @property
    def exposure(self) -> Exposure:
        return exposure(self.model, self.x)

    def __repr__(self) -> str:
        labels = self.y.tolist()
        copies = self.exposure.copies.tolist()
        return f"SmallRound({self.exposure!r}, labels={labels}, copies={copies}, {self.update!r})"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Keep Hypothesis from printing every number."""
        printer.text(repr(self))


def make_model(
    features: int, neurons: int, classes: int, hidden: tuple[int, ...] = (), *, seed: int = 0
) -> nn.Sequential:
    """A float64 MLP with weights drawn from `seed`; biases spread the neurons' degrees."""
    generator = torch.Generator().manual_seed(seed)
    widths = (features, neurons, *hidden, classes)
    modules: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layer = nn.Linear(fan_in, fan_out).double()
        with torch.no_grad():
            layer.weight.copy_(torch.randn(fan_out, fan_in, generator=generator) / fan_in**0.5)
            layer.bias.copy_(torch.randn(fan_out, generator=generator) * 0.3)
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def default_model(
    features: int, neurons: int, classes: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """A network as PyTorch starts it: its tail is nearly linear, which is hard on certificates."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(features, neurons), nn.ReLU(), nn.Linear(neurons, classes)
    return nn.Sequential(*layers).to(dtype)


def make_batch(features: int, batch: int, classes: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples in [0, 1) and labels."""
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.rand(batch, features, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (batch,), generator=generator)


def make_round(
    features: int = 24,
    neurons: int = 80,
    batch: int = 8,
    classes: int = 4,
    hidden: tuple[int, ...] = (),
    *,
    seed: int = 0,
    reduction: Reduction = "mean",
    dtype: torch.dtype = torch.float64,
) -> SmallRound:
    """One honest round on drawn data."""
    model = make_model(features, neurons, classes, hidden, seed=seed).to(dtype)
    x, y = make_batch(features, batch, classes, seed=seed)
    return SmallRound(model, x, y, local_update(model, x, y, Client(reduction=reduction)))


def round_of(
    model: nn.Sequential, x: Tensor, y: Tensor, *, seed: int = 0, **settings: Any
) -> SmallRound:
    """One honest round of a given model and batch; takes the settings of a `Client`."""
    return SmallRound(model, x, y, local_update(model, x, y, Client(**settings), seed=seed))


def truths_of(samples: Tensor, x: Tensor, *, within: float = 1e-6) -> list[int]:
    """For each sample the index of the first true one it equals, -1 for none."""
    found = samples.double().flatten(1)
    true = x.double().flatten(1)
    if not len(found):
        return []
    gaps = (found[:, None] - true).abs().amax(2)
    nearest = (gaps < gaps.amin(1, keepdim=True) + within).int().argmax(1)
    return [int(i) if gaps[k, i] < within else -1 for k, i in enumerate(nearest.tolist())]


def readable(recovery: Recovery, x: Tensor, *, within: float = 1e-3) -> set[int]:
    """Samples of a batch that stand among the certified ones or the candidates without proof."""
    seen = torch.cat([recovery.samples.flatten(1), recovery.unproven.samples().flatten(1)])
    gaps = [(row - x.double().flatten(1)).abs().amax(1) < within for row in seen.double()]
    return {i for gap in gaps for i in gap.nonzero()[:, 0].tolist()}


def scaled(update: Update, factor: float) -> Update:
    """The same update times a factor, as clipping, learning rates and client weights leave it."""
    gradients = {name: factor * gradient for name, gradient in update.gradients.items()}
    return replace(update, gradients=gradients)


def recovered(recovery: Recovery, round_: SmallRound, *, within: float = 1e-6) -> set[int]:
    """Indices of the recovered samples, of copies the first.

    Fails on a false certificate, on a repeat, on a wrong number of copies and on wrong labels, as
    far as the recovery says any.
    """
    truths = truths_of(recovery.samples, round_.x, within=within)
    assert -1 not in truths, "false certificate"
    assert len(set(truths)) == len(truths), "repeat"
    copies = round_.exposure.copies
    for place, sample in enumerate(truths):
        labels = Counter(round_.y[copies == sample].tolist())
        counts = recovery.label_counts[place]
        assert counts in ({}, dict(labels)), "wrong labels"
        assert int(recovery.multiplicities[place]) == sum(counts.values())
        label = int(recovery.labels[place])
        assert counts.get(label, 0) == max(counts.values(), default=0)
        training = round_.update.training
        if training is None or training.is_one_step:
            assert (label == -1) == (not counts)
        else:  # copies cannot be counted there
            assert not counts
            assert label == -1 or set(labels) == {label}, "wrong label"
    return set(truths)
