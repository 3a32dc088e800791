r"""What stands between a Linear and its silence: the activation, and what scales its input.

The attack needs neurons that are silent: an activation f that is constant below some threshold. Any
such f is a ReLU with another bias and another beginning of the tail,

    f(z) = f(max(z, low)) = f(relu(z - low) + low),

so that ReLU6, Hardtanh, Hardswish or a clamp need no decoder of their own. Between the Linear and
its activation each output may be scaled and shifted, as batch norm in evaluation mode does. With
z = gain (W x + b) + shift, the gradients of the Linear are gain times those of a layer with the
weight gain W and the bias gain b + shift, and that layer is the one that the decoder sees.

Example:
    >>> root = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, eps=0), nn.Hardtanh()).eval()
    >>> steps = ForwardPass(root, fx.Tracer().trace(root))
    >>> gate = read_gate(steps, steps.live[1])
    >>> gate.low, gate.scaling.by, gate.scaling.gain.tolist()
    (-1.0, "BatchNorm1d '1'", [1.0, 1.0, 1.0])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import Tensor, fx, nn

from gradpeel.errors import InputError
from gradpeel.target.forward_pass import BATCH_NORMS, ForwardPass, bias_of
from gradpeel.target.front_reading import read_affine

__all__ = ["Fold", "Gate", "Scaling", "mixes", "read_gate", "read_scaling"]

_SILENT: Mapping[str, tuple[str, float | None]] = MappingProxyType(
    {
        "clamp": ("min", None),
        "clampmin": ("min", None),
        "clip": ("min", None),
        "hardsigmoid": ("", -3.0),
        "hardswish": ("", -3.0),
        "hardtanh": ("min_val", -1.0),
        "relu": ("", 0.0),
        "relu6": ("", 0.0),
        "threshold": ("threshold", None),
    }
)
"""Activations that are constant below a threshold: the setting that names it, and its default."""


def _one() -> Tensor:
    return torch.ones((), dtype=torch.float64, device="cpu")


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.float64, device="cpu")


@dataclass(frozen=True, eq=False)
class Scaling:
    """What happens to a Linear's output before its activation: z = gain * output + shift.

    Attributes:
        gain: float64, one number or (neurons,), nowhere zero.
        shift: float64, likewise.
        by: the steps that scale and shift, in the words of a message; empty if there are none.
        norm_bias: the bias of the last batch norm among them.
        norm_gain: what that bias is multiplied by on its way to the activation.
    """

    gain: Tensor = field(default_factory=_one)
    shift: Tensor = field(default_factory=_zero)
    by: str = ""
    norm_bias: nn.Parameter | None = None
    norm_gain: Tensor = field(default_factory=_one)


@dataclass(frozen=True, eq=False)
class Fold:
    """By how much a layer's parameters are scaled on the way to its ReLU.

    Attributes:
        weight: (neurons,) factor of each neuron's weights, nowhere zero.
        bias: (neurons,) factor of the parameter that serves as the bias.
        by: the steps that scale, in the words of a message.
    """

    weight: Tensor
    bias: Tensor
    by: str

    def to(self, device: torch.device) -> Fold:
        """The same on another device."""
        return replace(self, weight=self.weight.to(device), bias=self.bias.to(device))


@dataclass(frozen=True, eq=False)
class Gate:
    """An activation that is silent below a threshold, behind a Linear.

    Attributes:
        activation: its node.
        low: the threshold at and below which it is constant; 0 for ReLU.
        is_relu: whether it is ReLU, whatever its name.
        scaling: what happens to the Linear's output before.
    """

    activation: fx.Node
    low: float
    is_relu: bool
    scaling: Scaling

    def bias_of(self, linear: nn.Linear) -> nn.Parameter | None:
        """The parameter whose gradient sums up the sensitivities, if there is one.

        A Linear in front of a batch norm often has no bias; the norm's own serves as well.
        """
        own = bias_of(linear)
        return self.scaling.norm_bias if own is None else own

    def fold(self, linear: nn.Linear) -> tuple[Tensor, Tensor, Fold | None]:
        """Weight and bias of the layer as its ReLU sees it, and by how much they are scaled.

        Without anything that scales or shifts, they are the Linear's own.
        """
        weight, scaling = linear.weight.detach(), self.scaling
        if not scaling.by and not self.low:
            return weight, linear.bias.detach(), None
        gain, shift = scaling.gain.to(weight.device), scaling.shift.to(weight.device) - self.low
        everyone = torch.ones(len(weight), dtype=torch.float64, device=weight.device)
        parameter = bias_of(linear)
        own = 0.0 * everyone if parameter is None else parameter.detach().double()
        bias = own * gain + shift
        if not self.low:
            bias = bias.to(weight.dtype)
        if not scaling.by:
            return weight, bias, None
        factor = scaling.norm_gain.to(weight.device) if parameter is None else gain
        fold = Fold(everyone * gain, everyone * factor, scaling.by)
        return (weight.double() * fold.weight[:, None]).to(weight.dtype), bias, fold


def read_gate(steps: ForwardPass, target: fx.Node) -> Gate | None:
    """The activation behind a Linear, if it is silent below a threshold."""
    scaling, consumers = read_scaling(steps, target)
    if len(consumers) != 1:
        return None
    low = _threshold(steps, consumers[0])
    if low is None:
        return None
    is_relu = steps.is_relu(consumers[0]) or _is_relu(steps, consumers[0])
    return Gate(consumers[0], low, is_relu, scaling)


def read_scaling(steps: ForwardPass, target: fx.Node) -> tuple[Scaling, list[fx.Node]]:
    """What scales and shifts a Linear's output, and the nodes that work on the result."""
    linear = steps.layer(target)
    neurons = linear.out_features if isinstance(linear, nn.Linear) else 0
    scaling, consumers = Scaling(), steps.consumers(target)
    while len(consumers) == 1:
        further = _scaled(steps, consumers[0], scaling, neurons)
        if further is None:
            break
        scaling, consumers = further, steps.consumers(consumers[0])
    return scaling, consumers


def _scaled(steps: ForwardPass, node: fx.Node, before: Scaling, neurons: int) -> Scaling | None:
    """The scaling with one more step; None if the step does something else."""
    try:
        step = read_affine(steps, node)
    except InputError:  # it erases what it is given
        return None
    layer = steps.layer(node)
    if step is None or (isinstance(layer, BATCH_NORMS) and mixes(layer)):
        return None
    sizes = {tuple(step.offset.shape), tuple(step.scale.shape)}
    if not sizes <= {(), (1,), (neurons,)}:
        return None
    gain, shift = 1.0 / step.scale, -step.offset / step.scale
    after = Scaling(
        before.gain * gain,
        before.shift * gain + shift,
        ", ".join(filter(None, [before.by, steps.describe(node)])),
        before.norm_bias,
        before.norm_gain * gain,
    )
    if isinstance(layer, BATCH_NORMS) and layer.affine:
        shared = len(steps.uses(layer.bias)) > 1
        return replace(after, norm_bias=None if shared else layer.bias, norm_gain=_one())
    return after


def mixes(norm: nn.Module) -> bool:
    """Whether a batch norm uses the statistics of the batch."""
    return norm.training or getattr(norm, "running_mean", None) is None


def _threshold(steps: ForwardPass, node: fx.Node) -> float | None:
    """The value at and below which an activation is constant, if there is one."""
    name = steps.operation(node).replace("_", "").lower()
    if name not in _SILENT:
        return None
    setting, default = _SILENT[name]
    layer = steps.layer(node)
    given = node.kwargs.get(setting, (*node.args[1:2], default)[0] if setting else default)
    low = given if layer is None else getattr(layer, setting, default)
    if not isinstance(low, int | float):
        return None
    below = low - torch.logspace(-3, 3, 7, dtype=torch.float64, device="cpu")
    found = _activate(steps, node, torch.cat([below, below.new_tensor([low])]))
    return float(low) if found is not None and bool((found == found[0]).all()) else None


def _is_relu(steps: ForwardPass, node: fx.Node) -> bool:
    """Whether an activation is ReLU under another name, such as clamp(min=0)."""
    sizes = torch.logspace(-30, 30, 61, dtype=torch.float64, device="cpu")
    probe = torch.cat([-sizes, sizes])
    found = _activate(steps, node, probe)
    return found is not None and torch.equal(found, probe.relu())


def _activate(steps: ForwardPass, node: fx.Node, z: Tensor) -> Tensor | None:
    """What an activation makes of values; None if that depends on anything else."""
    layer, (_, *args) = steps.layer(node), node.args or (None,)
    others = [*args, *node.kwargs.values()]
    if any(isinstance(other, fx.Node) for other in others):
        return None
    try:
        if layer is not None:
            found = layer(z.clone())
        elif node.op == "call_method":
            found = getattr(z.clone(), str(node.target))(*args, **node.kwargs)
        else:
            found = node.target(z.clone(), *args, **node.kwargs)  # type: ignore[operator]
    except (RuntimeError, TypeError):
        return None
    return found if isinstance(found, Tensor) and found.shape == z.shape else None
