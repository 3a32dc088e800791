"""Split a network at its first Linear -> ReLU into front, target and tail.

The target is the layer whose gradient is read (paper, section "Architectural Assumptions"); the
front leads from the input to it, the tail from its activations to the logits. Any module that
torch.fx can trace is split as it is, in the mode it is in; one that cannot be handled is refused
with every reason at once.

Example:
    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> target, x = split(model), torch.rand(5, 3, 2, 2)
    >>> torch.allclose(target.tail(target.pre_activations(target.front(x)).relu()), model(x))
    True
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from gradpeel.errors import (
    InputError,
    ModelError,
    ModelRefusedError,
)
from gradpeel.target.forward_pass import ForwardPass, is_linear
from gradpeel.target.front import Front
from gradpeel.target.front_reading import read_front
from gradpeel.target.refusals import (
    reason_without_linear,
    reasons_after_target,
    reasons_at_target,
    reasons_in_modules,
    reasons_in_steps,
    reasons_not_reproduced,
    reasons_unreadable,
)
from gradpeel.target.tracing import trace

__all__ = ["Tail", "Target", "split", "with_first_layer"]


class Tail(nn.Module):
    """What stands after the target's ReLU: logits = tail(activations).

    Attributes:
        next_layer: the Linear that the activations enter first and only, if there is one.
        next_weight_name: its weight's name in the model.
        next_bias_name: its bias's name in the model, if it has a bias.
        rest: what follows the next layer, or the whole tail where there is none.
    """

    def __init__(
        self,
        rest: nn.Module,
        *,
        next_layer: nn.Linear | None = None,
        next_weight_name: str | None = None,
        next_bias_name: str | None = None,
    ) -> None:
        super().__init__()
        self.next_layer = next_layer
        self.next_weight_name = next_weight_name
        self.next_bias_name = next_bias_name
        self.rest = rest

    def forward(self, activations: Tensor) -> Tensor:
        """Map activations, (n, neurons), to logits, (n, classes)."""
        if self.next_layer is not None:
            activations = self.next_layer(activations)
        logits: Tensor = self.rest(activations)
        return logits


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """The attacked layer, N neurons on F features, with what stands before and after it.

    Attributes:
        weight: (neurons, features), a detached copy.
        bias: (neurons,), a detached copy.
        weight_name: name of the weight among the model's parameters.
        bias_name: name of the bias.
        front: rows = front(x), (n, features); x = front.invert(rows, sample_shape).
        tail: logits = tail(activations).
    """

    weight: Tensor
    bias: Tensor
    weight_name: str
    bias_name: str
    front: Front
    tail: Tail

    @property
    def neurons(self) -> int:
        """Number N of neurons."""
        return self.weight.shape[0]

    @property
    def features(self) -> int:
        """Number F of features that enter each neuron."""
        return self.weight.shape[1]

    def pre_activations(self, rows: Tensor) -> Tensor:
        """Map rows, (n, features), to what enters the ReLU, (n, neurons)."""
        return functional.linear(rows.to(self.weight), self.weight, self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """Map a batch, (n, *sample_shape), to what the model makes of it, (n, classes)."""
        logits: Tensor = self.tail(self.pre_activations(self.front(x)).relu())
        return logits

    def to(self, dtype: torch.dtype) -> Target:
        """Return a copy of everything in `dtype`."""
        return replace(
            self,
            weight=self.weight.to(dtype),
            bias=self.bias.to(dtype),
            front=self.front.to(dtype),
            tail=copy.deepcopy(self.tail).to(dtype),
        )

    def __repr__(self) -> str:
        layer = self.tail.next_layer
        after = "no next layer" if layer is None else f"next layer {layer.out_features} wide"
        return f"Target({self.neurons} neurons on {self.features} features, {after})"


def split(model: nn.Module) -> Target:
    """Split a network at its first Linear -> ReLU.

    Args:
        model: any module of one input that torch.fx can trace; it is not changed.

    Returns:
        The target with its front and tail, all of them copies, in the model's dtype.

    Raises:
        InputError: `model` is not a module.
        ModelRefusedError: the network cannot be handled; `reasons` says why, completely, each one
            as "can never work", "not supported yet" or "change this setting".

    Example:
        >>> split(nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 2)))
        Target(100 neurons on 30 features, next layer 2 wide)
        >>> split(nn.Sequential(nn.Linear(30, 100, bias=False), nn.Tanh(), nn.Dropout()))
        Traceback (most recent call last):
        gradpeel.errors.ModelRefusedError: the model cannot be audited: [change this setting]
        Dropout '2' is active: call model.eval(); [can never work] Linear '0' has no bias: ...
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model of type {type(model).__name__}: expected a torch.nn.Module")
    reasons = reasons_in_modules(model)
    if unreadable := reasons_unreadable(model):
        raise ModelRefusedError([*reasons, *unreadable])
    try:
        steps = trace(model)
    except ModelError as reason:
        raise ModelRefusedError([*reasons, reason]) from reason
    reasons += reasons_in_steps(steps)
    found = _find_target(steps)
    if found is None:
        raise ModelRefusedError([*reasons, reason_without_linear(steps)])
    node, layer = found
    reasons += reasons_at_target(steps, node, layer)
    front_steps, obstacles = read_front(steps, node)
    if reasons or obstacles:
        raise ModelRefusedError([*reasons, *obstacles])
    steps.module.requires_grad_(requires_grad=False)
    tail = _tail_after(steps, steps.consumers(node)[0], layer.out_features)
    target = Target(
        weight=layer.weight.detach(),
        bias=layer.bias.detach(),
        weight_name=steps.parameter_names[id(layer.weight)],
        bias_name=steps.parameter_names[id(layer.bias)],
        front=Front(front_steps, layer.in_features, layer.weight.dtype),
        tail=tail,
    )
    reasons = reasons_after_target(tail, target.weight) or reasons_not_reproduced(
        steps.root, target.front, target.logits
    )
    if reasons:
        raise ModelRefusedError(reasons)
    return target


def with_first_layer(model: nn.Module, target: Target, weight: Tensor, bias: Tensor) -> nn.Module:
    """Return a copy of the model whose target layer has another weight and bias.

    Args:
        model: the network `target` was split from; it is not changed.
        target: names the layer.
        weight: (neurons, features), cast to the model's dtype.
        bias: (neurons,), cast to the model's dtype.

    Raises:
        InputError: a shape that is not the target's.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> shaped = with_first_layer(model, split(model), torch.ones(3, 2), torch.zeros(3))
        >>> split(shaped).pre_activations(torch.ones(1, 2))
        tensor([[2., 2., 2.]])
    """
    shaped = copy.deepcopy(model)
    for key, name, value in (
        ("weight", target.weight_name, weight),
        ("bias", target.bias_name, bias),
    ):
        parameter = shaped.get_parameter(name)
        if value.shape != parameter.shape:
            raise InputError(
                f"{key} of shape {tuple(value.shape)}: "
                f"expected {tuple(parameter.shape)}, as '{name}' has"
            )
        with torch.no_grad():
            parameter.copy_(value)
    return shaped


def _find_target(steps: ForwardPass) -> tuple[fx.Node, nn.Linear] | None:
    """The first Linear that ReLU follows; where there is none, the first Linear."""
    linears = [
        (node, layer)
        for node in steps.live
        if is_linear(layer := steps.layer(node)) and node in steps.varying and steps.consumers(node)
    ]
    followed = (found for found in linears if any(map(steps.is_relu, steps.consumers(found[0]))))
    return next(followed, linears[0] if linears else None)


def _tail_after(steps: ForwardPass, relu: fx.Node, neurons: int) -> Tail:
    """What follows the ReLU, its first Linear apart if that alone takes all activations."""
    consumers = steps.consumers(relu, of_rows=True)
    layer = steps.layer(consumers[0])
    if len(consumers) > 1 or not is_linear(layer) or layer.in_features != neurons:
        return Tail(steps.module_after(relu))
    # Parameters that are computed, or serve elsewhere too, have a gradient of more than this layer.
    own = dict(layer.named_parameters(recurse=False))
    bias = own.get("bias")
    if "weight" not in own or any(len(steps.uses(parameter)) > 1 for parameter in own.values()):
        return Tail(steps.module_after(relu))
    return Tail(
        steps.module_after(consumers[0]),
        next_layer=layer,
        next_weight_name=steps.parameter_names[id(layer.weight)],
        next_bias_name=None if bias is None else steps.parameter_names[id(bias)],
    )
