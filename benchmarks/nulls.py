"""Updates in which nothing may be certified: whatever is, and is no sample, is so by mistake.

Everything is drawn by a seed: a real data set and a part of its features, a batch, a design, a
network. Sizes are small, so that many candidates are tried in little time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached
from gradpeel.datasets import draw_batch
from gradpeel.designs import PAPER_METHODS, Layer
from gradpeel.exposure import exposure
from gradpeel.networks import mlp, mlp_from_state
from gradpeel.signals import contributions, sensitivities
from gradpeel.update import norm

__all__ = ["KINDS", "Null", "Scene", "draw"]

METHODS = ("SD-Ind", "SD-Mir", "SF-Ind", "TW-Ind", "Passive")
FEATURES = (64, 784)
BATCHES = (16, 128)
CLIP = 1.0
MULTIPLIERS = (0.1, 1.0)

COMPARABLE = 0.1
"""Least ratio of the second largest share in a mixture to the largest."""


@dataclass(frozen=True, eq=False)
class Scene:
    """An honest client.

    Attributes:
        model: the network it received.
        x: (batch, features).
        y: (batch,).
    """

    model: nn.Module
    x: Tensor
    y: Tensor

    def update(self) -> gp.Update:
        """What it sends."""
        return gp.local_update(self.model, self.x, self.y)


@dataclass(frozen=True, eq=False)
class Null:
    """What the decoder gets instead of an honest update, and the truth.

    Attributes:
        model: the network that the decoder takes for the client's.
        update: the update.
        scene: the client that some of it came from.
    """

    model: nn.Module
    update: gp.Update
    scene: Scene

    @property
    def candidates(self) -> int:
        """Candidates there are: neurons that have a gradient."""
        bias = self.update.gradients[gp.split(self.model).bias_name]
        return int((bias != 0).sum())


def draw(data_dir: Path, neurons: int, dtype: torch.dtype, rng: np.random.Generator) -> Scene:
    """Draw an honest client, computing in `dtype`, from the data sets in a folder."""
    files = sorted(data_dir.glob("*.npz"))
    dataset = load_cached(files[int(rng.integers(len(files)))])
    size = min(_log_uniform(BATCHES, rng), len(dataset.x_train))
    batch = draw_batch(dataset, size, shuffle=True, rng=rng)
    count = min(_log_uniform(FEATURES, rng), dataset.features)
    some = torch.from_numpy(rng.permutation(dataset.features)[:count])
    rows, auxiliary = batch.x.flatten(1)[:, some], batch.auxiliary.flatten(1)[:, some]
    hidden = (neurons,) if rng.random() < 0.5 else (neurons, 64)
    model = mlp(count, dataset.classes, hidden=hidden, rng=rng)
    design = PAPER_METHODS[str(rng.choice(METHODS))].build(auxiliary)
    first = gp.split(model)
    layer = design.shape(
        Layer(first.weight, first.bias), batch_size=size, rng=rng, front=nn.Identity()
    )
    state = model.state_dict() | {"0.weight": layer.weight, "0.bias": layer.bias}
    return Scene(mlp_from_state(state).to(dtype), rows, batch.y)


def _log_uniform(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    low, high = bounds
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def mixtures(scene: Scene, rng: np.random.Generator) -> Null | None:
    """An honest update of a network without singletons; None if no neuron is left.

    Neurons are dropped until in each at least two samples have comparable shares.
    """
    model = scene.model
    while True:
        exposed = exposure(model, scene.x)
        target = gp.split(model).to(torch.float64)
        c = sensitivities(contributions(target, scene.x, scene.y, exposed.copies), exposed)
        largest = c[:, exposed.distinct].topk(2, dim=1).values
        mixes = (largest[:, 1] > 0) & (largest[:, 1] >= COMPARABLE * largest[:, 0])
        if not bool(mixes.any()):
            return None
        if bool(mixes.all()):
            break
        model = _keep(model, mixes)
    if bool(exposed.reached.any()):
        raise AssertionError("a neuron isolates a sample")
    scene = replace(scene, model=model)
    return Null(model, _maybe_unsized(scene.update(), rng), scene)


def _keep(model: nn.Module, kept: Tensor) -> nn.Module:
    """The network with some neurons of its first layer only."""
    state = model.state_dict()
    state |= {name: state[name][kept] for name in ("0.weight", "0.bias")}
    return mlp_from_state(state | {"2.weight": state["2.weight"][:, kept]})


def shuffled(scene: Scene, rng: np.random.Generator) -> Null:
    """The target's bias gradient in another order."""
    update = scene.update()
    name = gp.split(scene.model).bias_name
    order = torch.from_numpy(rng.permutation(len(update.gradients[name])))
    moved = {**update.gradients, name: update.gradients[name][order]}
    return Null(scene.model, _maybe_unsized(replace(update, gradients=moved), rng), scene)


def other_model(scene: Scene, rng: np.random.Generator) -> Null:
    """Decoded with weights of the same shapes that are not the client's."""
    layers = [layer for layer in scene.model.modules() if isinstance(layer, nn.Linear)]
    *hidden, classes = [layer.out_features for layer in layers]
    dtype = layers[0].weight.dtype
    other = mlp(scene.x.shape[1], classes, hidden=hidden, rng=rng, dtype=dtype)
    return Null(other, _maybe_unsized(scene.update(), rng), scene)


def noise(scene: Scene, rng: np.random.Generator) -> Null:
    """Gaussian numbers as large as an update's, and nothing else."""
    update = scene.update()
    drawn = {
        name: float(gradient.double().std()) * _normal(gradient, rng)
        for name, gradient in update.gradients.items()
    }
    return Null(scene.model, _maybe_unsized(_rounded(update, drawn), rng), scene)


def private(scene: Scene, rng: np.random.Generator) -> Null:
    """Clipped, with the noise of differential privacy."""
    update = scene.update()
    scale = min(1.0, CLIP / (norm(update.gradients) or 1.0))
    sigma = CLIP * rng.uniform(*MULTIPLIERS)
    drawn = {
        name: scale * gradient.double() + sigma * _normal(gradient, rng)
        for name, gradient in update.gradients.items()
    }
    return Null(scene.model, _maybe_unsized(_rounded(update, drawn), rng), scene)


def _normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.standard_normal(tuple(like.shape)))


def _rounded(update: gp.Update, gradients: dict[str, Tensor]) -> gp.Update:
    return replace(update, gradients={name: g.to(update.dtype) for name, g in gradients.items()})


def _maybe_unsized(update: gp.Update, rng: np.random.Generator) -> gp.Update:
    """Half of the updates do not say their batch size."""
    return replace(update, batch_size=None) if rng.random() < 0.5 else update


KINDS: dict[str, Callable[[Scene, np.random.Generator], Null | None]] = {
    "mixtures only": mixtures,
    "shuffled biases": shuffled,
    "another model": other_model,
    "pure noise": noise,
    "differential privacy": private,
}
"""How to make a null of an honest client, if it can be made."""
