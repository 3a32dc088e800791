"""Derivatives of what stands behind the target: forward along tangents, backward from gradients.

`torch.func` computes both, but its first call loads torch's compiler, which takes two seconds. Most
tails are chains of Linear and ReLU, whose forward derivative is two lines; only other tails pay for
the general way. The results are the same bit by bit.

Example:
    >>> layer = nn.Linear(3, 2, bias=False).requires_grad_(False)
    >>> layer.weight[:] = torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]])
    >>> net = fx.symbolic_trace(nn.Sequential(layer, nn.ReLU()))
    >>> x, along = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> [part.tolist() for part in push(net, x, along)]
    [[[7.0, 0.0]], [[2.0, 0.0]]]
    >>> pull(net, x, torch.ones(1, 2)).tolist()
    [[1.0, 0.0, 2.0]]
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

__all__ = ["pull", "push"]

_RELUS = {torch.relu, functional.relu, torch.relu_, "relu", "relu_"}
"""The ways to write a ReLU without a layer."""


def push(module: nn.Module, x: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs of a module, and how they change along tangents.

    Args:
        module: maps rows (n, width) to rows; its parameters are constants here.
        x: (n, width).
        tangents: (n, width) how x changes.
    """
    layers = _chain(module)
    if layers is None:
        outputs, change = torch.func.jvp(module, (x,), (tangents,))[:2]
        return outputs, change
    with torch.no_grad():
        for layer in layers:
            if layer is None:  # a ReLU
                x = x.relu()
                tangents = torch.where(x <= 0, 0.0, tangents)
            else:
                x = layer(x)
                tangents = functional.linear(tangents, layer.weight)
    return x, tangents


def pull(module: nn.Module, x: Tensor, gradients: Tensor) -> Tensor:
    """(n, width) the gradient at the inputs of a module, from that at its outputs.

    Args:
        module: maps rows (n, width) to rows.
        x: (n, width).
        gradients: the gradient at the outputs, in their shape.
    """
    with torch.enable_grad():
        entered = x.detach().requires_grad_()
        outputs = module(entered)
        if not outputs.requires_grad:  # they do not depend on the inputs
            return torch.zeros_like(x)
        # The gradient of this sum at the outputs is `gradients`. Given to `grad` as an argument,
        # they would load SymPy first.
        total = (outputs * gradients).sum()
    (found,) = torch.autograd.grad(total, entered, materialize_grads=True)
    return found


def _chain(module: nn.Module) -> list[nn.Linear | None] | None:
    """The layers of a chain of Linear and ReLU, None for each ReLU; None for any other module."""
    if type(module) is nn.Identity:
        return []
    if not isinstance(module, fx.GraphModule):
        return None
    layers: list[nn.Linear | None] = []
    for before, node in pairwise(module.graph.nodes):
        found = _layers_at(module, node)
        if found is None or node.all_input_nodes != [before]:
            return None
        layers += found
    return layers


def _layers_at(module: fx.GraphModule, node: fx.Node) -> list[nn.Linear | None] | None:
    """What one step adds to a chain; nothing if it hands its input on, None if it does not fit."""
    if node.op == "output":
        return [] if isinstance(node.args[0], fx.Node) else None
    if node.op != "call_module":
        # A tail with a layer that works in place begins with a copy.
        is_copy = (node.op, node.target) == ("call_method", "clone")
        return [] if is_copy else [None] if node.target in _RELUS else None
    layer = module.get_submodule(str(node.target))
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):  # noqa: SLF001
        return None
    if type(layer) is nn.Linear:
        return [layer]
    passes_on = type(layer) is nn.Identity or (type(layer) is nn.Dropout and not layer.training)
    return [] if passes_on else [None] if type(layer) is nn.ReLU else None
