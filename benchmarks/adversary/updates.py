"""Updates that are not quite what the decoder takes them for.

A server sees what a client sends, not what it computed: multiplied by a clipping factor, a learning
rate or a weight; with noise; in fewer digits than the file's type has; after more than one step;
with a batch size that is missing or wrong. Less may come back of such updates, but nothing false.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.adversary.scenes import Scene, Setting, honest

__all__ = ["compressed", "drifted", "noisy", "of_rounds", "scaled", "stated", "summed"]

Make = Callable[[Setting], Scene]
Change = Callable[[Tensor], Tensor]


def _each(update: gp.Update, change: Change) -> gp.Update:
    """Change every gradient, keeping its dtype."""
    changed = {name: change(g).to(g.dtype) for name, g in update.gradients.items()}
    return replace(update, gradients=changed)


def stated(make: Make, *, size: Callable[[int], int | None]) -> Make:
    """State another batch size, or none."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        return replace(made, stated=size(len(made.x)))

    return scene


def scaled(make: Make, *, factor: float | None = None) -> Make:
    """Multiply the update; by a factor drawn from 0.001 to 1000 if none is given."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        by = float(10 ** setting.rng.uniform(-3, 3)) if factor is None else factor
        return replace(made, alter=lambda update: _each(update, lambda g: g * by))

    return scene


def summed(make: Make) -> Make:
    """The sum of the losses instead of their mean."""

    def scene(setting: Setting) -> Scene:
        return replace(make(setting), reduction="sum")

    return scene


def noisy(make: Make, *, sigma: float) -> Make:
    """Add noise, relative to the spread of each gradient."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        seed = int(setting.rng.integers(2**31))
        return replace(made, alter=lambda update: gp.with_noise(update, sigma, seed=seed))

    return scene


def _steps(values: Tensor, levels: int) -> Tensor:
    """Round to evenly spaced levels."""
    step = values.abs().amax() / levels
    return (values / step).round() * step if step > 0 else values


def _largest(values: Tensor, share: float) -> Tensor:
    """Keep the largest entries, and set the others to zero."""
    count = max(1, round(share * values.numel()))
    least = values.abs().flatten().kthvalue(values.numel() - count + 1).values
    return torch.where(values.abs() >= least, values, 0.0)


_COMPRESSIONS: dict[str, Change] = {
    "float16 inside": lambda g: g.half().to(g.dtype),
    "bfloat16 inside": lambda g: g.bfloat16().to(g.dtype),
    "float32 inside": lambda g: g.float().to(g.dtype),
    "8 bits": lambda g: _steps(g, 127),
    "16 bits": lambda g: _steps(g, 32767),
    "largest tenth": lambda g: _largest(g, 0.1),
    "largest half": lambda g: _largest(g, 0.5),
    "clipped entries": lambda g: g.clamp(-float(g.std()), float(g.std())),
}


def compressed(make: Make, *, kind: str) -> Make:
    """Send fewer digits than the dtype has, or only some of the entries."""

    def scene(setting: Setting) -> Scene:
        return replace(make(setting), alter=lambda u: _each(u, _COMPRESSIONS[kind]))

    return scene


def drifted(make: Make, *, kind: str, amount: float) -> Make:
    """An update that is not the gradient at the weights the decoder has.

    Args:
        make: makes the scene.
        kind: "stale", the client's weights differ; "decay", weight decay is added; "steps", two
            local steps are summed up; "others", part of another client's update is added.
        amount: relative difference of the weights, rate of the decay or of the steps, share of
            the other client's update.
    """

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        seed = int(setting.rng.integers(2**31))
        other = make(setting) if kind == "others" else made

        def compute(model: nn.Module, scene: Scene) -> gp.Update:
            if kind == "stale":
                return honest(_moved(model, amount, seed), scene)
            first = honest(model, scene)
            if kind == "others":
                return _plus(first, honest(model, other).gradients, amount)
            if kind == "decay":
                return _plus(first, dict(model.named_parameters()), amount)
            stepped = _at(model, _plus(_weights(model), first.gradients, -amount).gradients)
            return _plus(first, honest(stepped, scene).gradients, 1.0)

        return replace(made, compute=compute, others=other.x if kind == "others" else None)

    return scene


def of_rounds(make: Make, *, client: gp.Client, clients: int = 1) -> Make:
    """Train locally, one client or several whose updates are added up.

    Args:
        make: makes the scene.
        client: how each of them trains.
        clients: how many share the batch.
    """

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        seed = int(setting.rng.integers(2**31))

        def compute(model: nn.Module, scene: Scene) -> gp.Update:
            shares = gp.Aggregation(min(clients, len(scene.x))).split(len(scene.x))
            ends = np.cumsum(shares)
            return gp.aggregate(
                [
                    gp.local_update(
                        model,
                        scene.x[end - size : end],
                        scene.y[end - size : end],
                        client,
                        seed=seed,
                    )
                    for size, end in zip(shares, ends.tolist(), strict=True)
                ]
            )

        return replace(made, compute=compute)

    return scene


def _weights(model: nn.Module) -> gp.Update:
    return gp.Update({name: value.detach() for name, value in model.named_parameters()})


def _plus(update: gp.Update, added: Mapping[str, Tensor], factor: float) -> gp.Update:
    summed = {name: g + factor * added[name].detach() for name, g in update.gradients.items()}
    return replace(update, gradients=summed)


def _moved(model: nn.Module, amount: float, seed: int) -> nn.Module:
    return _at(model, gp.with_noise(_weights(model), amount, seed=seed).gradients)


def _at(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    moved = copy.deepcopy(model)
    moved.load_state_dict(moved.state_dict() | dict(weights))
    return moved
