"""Networks that are made to fool certificates.

What leaves the decoder with less to go by: a tail that is nearly linear, or saturated, or of low
rank; neurons that are copies of one another; few outputs; losses without labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import gradpeel as gp
from benchmarks.adversary.batches import one_class
from benchmarks.adversary.scenes import Scene, Setting, network, plain
from benchmarks.clients import Skip
from gradpeel.designs import PAPER_METHODS, Layer
from gradpeel.target import split, with_first_layer

__all__ = [
    "TAILS",
    "designed",
    "few_outputs",
    "first_layer",
    "low_rank_tail",
    "scaled_head",
    "tail",
    "trained",
    "with_loss",
    "without_biases",
]

Make = Callable[[Setting], Scene]


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def scaled_head(make: Make, *, factor: float) -> Make:
    """Multiply every weight behind the target: small ones make the tail nearly linear."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        with torch.no_grad():
            for layer in _linears(made.model)[1:]:
                layer.weight.mul_(factor)
        return made

    return scene


def without_biases(make: Make, *, everywhere: bool = True) -> Make:
    """Set biases to zero, all of them or the target's alone."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        layers = _linears(made.model)
        with torch.no_grad():
            for layer in layers if everywhere else layers[:1]:
                layer.bias.zero_()
        return made

    return scene


def low_rank_tail(make: Make, *, rank: int) -> Make:
    """A next layer of low rank: every sample sends back nearly the same direction."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        head = _linears(made.model)[1]
        left, values, right = torch.linalg.svd(head.weight.detach(), full_matrices=False)
        with torch.no_grad():
            head.weight.copy_((left[:, :rank] * values[:rank]) @ right[:rank])
        return made

    return scene


def first_layer(make: Make, *, kind: str) -> Make:
    """Change the target: "twins", "mirrored", "low rank", "sparse firing" or "dense firing"."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        target = _linears(made.model)[0]
        half = len(target.bias) // 2
        with torch.no_grad():
            weight, bias = target.weight, target.bias
            if kind in {"twins", "mirrored"}:
                sign = 1 if kind == "twins" else -1
                weight[half : 2 * half] = sign * weight[:half]
                bias[half : 2 * half] = sign * bias[:half]
            elif kind == "low rank":
                left, values, right = torch.linalg.svd(weight, full_matrices=False)
                kept = max(1, min(weight.shape) // 8)
                weight.copy_((left[:, :kept] * values[:kept]) @ right[:kept])
            else:
                # Nearly all neurons silent, or nearly all of them firing, on nearly all samples.
                share = 0.97 if kind == "sparse firing" else 0.03
                bias.copy_(-(made.source.x[:400] @ weight.T).quantile(share, dim=0))
        return made

    return scene


def trained(make: Make, *, epochs: int, rate: float = 0.1) -> Make:
    """A network after some epochs of SGD on samples that no client has."""

    def scene(setting: Setting) -> Scene:
        made = make(setting)
        source = made.source
        parameters = list(made.model.parameters())
        for _ in range(epochs):
            order = torch.from_numpy(setting.rng.permutation(len(source.other_x)))
            for at in range(0, len(order), 64):
                some = order[at : at + 64]
                outputs = made.model(source.other_x[some])
                total = functional.cross_entropy(outputs, source.other_y[some])
                steps = torch.autograd.grad(total, parameters)
                with torch.no_grad():
                    for parameter, step in zip(parameters, steps, strict=True):
                        parameter.sub_(rate * step)
        return made

    return scene


def few_outputs(setting: Setting, *, outputs: int, one_label: bool = False) -> Scene:
    """A network with so many outputs and drawn labels; one output takes a regression."""
    scene = plain(setting, model=network(setting, outputs=outputs))
    if outputs == 1:
        y = torch.from_numpy(setting.rng.normal(size=(len(scene.x), 1)))
        return replace(scene, y=y, loss=gp.MeanSquaredError())
    y = torch.from_numpy(setting.rng.integers(outputs, size=len(scene.x)))
    return replace(scene, y=torch.full_like(y, int(y[0])) if one_label else y)


def with_loss(setting: Setting, *, loss: str, one: bool = False) -> Scene:
    """Another loss; "weights" draws class weights, and "weights with zeros" sets some to zero."""
    scene = one_class(setting) if one else plain(setting)
    classes, rng = setting.source.classes, setting.rng
    if loss == "mse":
        y = functional.one_hot(scene.y, classes).double()
        return replace(scene, y=y, loss=gp.MeanSquaredError())
    if loss == "bce":
        y = torch.from_numpy(rng.integers(2, size=(len(scene.x), classes))).double()
        return replace(scene, y=y, loss=gp.BinaryCrossEntropy())
    if loss == "unknown":
        return replace(scene, knows_tail=False)
    if loss.startswith("smoothing"):
        return replace(scene, loss=gp.CrossEntropy(label_smoothing=float(loss.split()[1])))
    weights = rng.uniform(0.2, 3.0, size=classes).round(2)
    if loss == "weights with zeros":
        weights[:: max(2, classes // 3)] = 0.0
        weights[int(scene.y[0])] = 1.0
    return replace(scene, loss=gp.CrossEntropy(class_weights=tuple(weights.tolist())))


def _batch_norm(rng: np.random.Generator) -> nn.Module:
    """A batch norm after training, with statistics of its own."""
    norm = nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    statistics = {
        "running_mean": torch.from_numpy(rng.normal(scale=0.3, size=WIDTH)),
        "running_var": torch.from_numpy(rng.uniform(0.5, 2.0, size=WIDTH)),
    }
    norm.load_state_dict(norm.state_dict() | statistics)
    return norm.eval()


def _linear(rng: np.random.Generator) -> nn.Linear:
    """A square layer by PyTorch's law, drawn from the generator given."""
    bound = WIDTH**-0.5
    layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(rng.uniform(-bound, bound, size=(WIDTH, WIDTH))))
        layer.bias.copy_(torch.from_numpy(rng.uniform(-bound, bound, size=WIDTH)))
    return layer


WIDTH = 48
"""Width of the layer behind the target in deeper tails."""

TAILS: dict[str, Callable[[np.random.Generator], list[nn.Module]]] = {
    "relu": lambda _: [nn.ReLU()],
    "gelu": lambda _: [nn.GELU()],
    "tanh": lambda _: [nn.Tanh()],
    "linear": lambda _: [],
    "three hidden layers": lambda rng: [
        nn.ReLU(),
        _linear(rng),
        nn.ReLU(),
        _linear(rng),
        nn.ReLU(),
    ],
    "layer norm": lambda _: [nn.LayerNorm(WIDTH, dtype=torch.float64), nn.ReLU()],
    "batch norm, evaluating": lambda rng: [_batch_norm(rng), nn.ReLU()],
    "batch norm, training": lambda _: [nn.BatchNorm1d(WIDTH, dtype=torch.float64), nn.ReLU()],
    "dropout": lambda _: [nn.ReLU(), nn.Dropout(0.5)],
    "residual": lambda rng: [nn.ReLU(), Skip(nn.Sequential(_linear(rng), nn.ReLU()))],
}
"""What stands between the second and the last layer."""


def tail(setting: Setting, *, kind: str, one: bool = False, at_target: bool = False) -> Scene:
    """A deeper tail.

    Args:
        setting: what to draw from.
        kind: one of `TAILS`.
        one: whether all samples are of one class.
        at_target: whether a dropout stands right behind the target, which hides the next layer.
    """
    scene = one_class(setting) if one else plain(setting)
    modules = list(network(setting, tail=(WIDTH,)))
    front = [*modules[:2], nn.Dropout(0.3), modules[2]] if at_target else modules[:3]
    between = TAILS[kind](setting.rng)
    return replace(scene, model=nn.Sequential(*front, *between, modules[-1]))


def designed(setting: Setting, *, method: str, one: bool = False) -> Scene:
    """The target set by one of the paper's designs."""
    scene = one_class(setting) if one else plain(setting)
    rng = setting.rng
    auxiliary = scene.source.other_x[: len(scene.x)]
    target = split(scene.model)
    layer = (
        PAPER_METHODS[method]
        .build(auxiliary)
        .shape(
            Layer(target.weight, target.bias), batch_size=len(scene.x), rng=rng, front=target.front
        )
    )
    model = with_first_layer(scene.model, target, layer.weight, layer.bias)
    return replace(scene, model=model)
