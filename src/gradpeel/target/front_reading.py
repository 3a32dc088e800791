"""Read the front of a traced network: which of its steps can be undone.

From the target back to the input, each step is either passed over (Identity, inactive dropout), or
read as a step of `gradpeel.target.front`, or named as an obstacle.

Example:
    >>> root = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 3))
    >>> steps = ForwardPass(root, fx.Tracer().trace(root))
    >>> read_front(steps, steps.live[-2])
    ((Flatten(),), '')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, fx, nn

from gradpeel.errors import InputError
from gradpeel.target.forward_pass import BATCH_NORMS, ForwardPass, bias_of, is_linear
from gradpeel.target.front import Affine, Flatten, Normalise, Step, normalising
from gradpeel.target.front_maps import Convolution, Mixing, Rearrangement, rearranging

__all__ = ["normalisation_of", "read_affine", "read_front"]

_ADD = {"add", "add_"}
_SUBTRACT = {"sub", "sub_", "subtract"}
_MULTIPLY = {"mul", "mul_", "multiply"}
_DIVIDE = {"div", "div_", "true_divide", "truediv"}
_TURNS: Mapping[str, Callable[[Tensor, list[int]], Tensor]] = MappingProxyType(
    {
        "flip": lambda x, sizes: x.flip(sizes),
        "movedim": lambda x, sizes: x.movedim(*sizes),
        "swapaxes": lambda x, sizes: x.transpose(*sizes),
        "transpose": lambda x, sizes: x.transpose(*sizes),
    }
)
"""Permutations of dimensions; each is undone by the same with its sizes in reverse order."""
_NAMED = 4  # obstacles that are named before the rest is counted


def read_front(steps: ForwardPass, target: fx.Node) -> tuple[tuple[Step, ...], str]:
    """Read the steps from the input to the target.

    Returns:
        The steps in the order they run, and the obstacles: those that cannot be undone, in the
        words of a message; empty if all can be.
    """
    read: list[Step] = []
    obstacles: list[str] = []
    for node in _way_back(steps, target):
        step = _read(steps, node)
        if step is None:
            obstacles.append(steps.describe(node))
        else:
            read += step
    if obstacles and (maps := _read_with_maps(steps, target)) is not None:
        return maps, ""
    named = ", ".join(reversed(obstacles[-_NAMED:]))
    more = f" and {len(obstacles) - _NAMED} more" if len(obstacles) > _NAMED else ""
    return tuple(reversed(read)), f"{named}{more}"


def _way_back(steps: ForwardPass, target: fx.Node) -> Iterator[fx.Node]:
    """The nodes from the target back to the input, both left out."""
    node = _source(steps, target)
    while node is not None and node.op != "placeholder":
        yield node
        node = _source(steps, node)


def _read_with_maps(steps: ForwardPass, target: fx.Node) -> tuple[Step, ...] | None:
    """The same with steps that move or mix values; None at the first that cannot be undone.

    It takes the singular values of linear maps, so that nobody asks for it without need.
    """
    read: list[Step] = []
    linear = steps.layer(target)
    width = linear.in_features if is_linear(linear) else 0
    for node in _way_back(steps, target):
        step = _read(steps, node)
        if step is None:
            try:
                found = _read_map(steps, node, width)
            except InputError:  # it loses something
                found = None
            if found is None:
                return None
            step = [found]
            mixing = found.mixing if isinstance(found, Convolution) else found
            if isinstance(mixing, Mixing):
                outputs, inputs = mixing.weight.shape
                width = width // outputs * inputs
        read += step
    return tuple(reversed(read))


def normalisation_of(module: nn.Module) -> Affine | None:
    """The fixed normalisation that a module is: `Normalise`, or torchvision's `Normalize`.

    The latter is known by its name, so that torchvision need not be installed, and believed when it
    does on an image what its name says.
    """
    if isinstance(module, Normalise):
        return normalising(module.mean, module.std)
    if type(module).__name__ != "Normalize" or not {"mean", "std"} <= set(dir(module)):
        return None
    try:
        mean, std = (torch.as_tensor(value).reshape(-1) for value in (module.mean, module.std))
        step = normalising(mean, std)
        image = torch.linspace(0, 1, 9).reshape(3, 3).repeat(2, len(mean), 1, 1)
        agrees = torch.allclose(module(image), step.apply(image))
    except (RuntimeError, TypeError, ValueError):
        return None
    return step if agrees else None


def _batch_norm(
    layer: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm,
) -> Affine:
    """What batch norm does with its running statistics, in evaluation mode."""
    offset = torch.zeros(layer.num_features, dtype=torch.float64)
    scale = torch.ones_like(offset)
    if layer.running_mean is not None and layer.running_var is not None:
        offset = layer.running_mean.double()
        scale = (layer.running_var.double() + layer.eps).sqrt()
    if layer.affine:
        scale = scale / layer.weight.detach().double()
        offset = offset - layer.bias.detach().double() * scale
    return Affine(offset, scale, channelwise=True)


def _source(steps: ForwardPass, node: fx.Node) -> fx.Node | None:
    """The first of a node's inputs that depends on the network's input."""
    return next((source for source in node.all_input_nodes if source in steps.varying), None)


def _read(steps: ForwardPass, node: fx.Node) -> list[Step] | None:
    """The steps a node stands for, none at all if it changes nothing; None if it cannot be read."""
    if steps.passes_on(node):
        return []
    if steps.flattens(node):
        return [Flatten()]
    try:
        step = read_affine(steps, node)
    except InputError:  # it erases what it is given
        return None
    return None if step is None else [step]


def _read_map(steps: ForwardPass, node: fx.Node, width: int) -> Step | None:
    """The permutation or the invertible linear map that a node is, with `width` outputs per sample.

    Raises:
        InputError: it is a map that loses something.
    """
    layer = steps.layer(node)
    if layer is None:
        return _turning(steps, node) or _indexing(steps, node)
    if is_linear(layer):
        weight = layer.weight.detach()
        own = bias_of(layer)
        bias = weight.new_zeros(len(weight)) if own is None else own.detach()
        return Mixing(weight, bias)
    if type(layer) is nn.Conv2d:
        return Convolution.of(layer, width)
    return rearranging(layer)


def _turning(steps: ForwardPass, node: fx.Node) -> Rearrangement | None:
    """The permutation of dimensions that a call is: permute, transpose, movedim, flip."""
    name, others = steps.operation(node), [*node.args[1:], *node.kwargs.values()]
    if len(others) == 1 and isinstance(others[0], list | tuple):
        others = list(others[0])
    sizes = [other for other in others if type(other) is int]
    if len(sizes) < len(others) or not sizes:
        return None
    if name == "permute":
        # The batch must stay where it is.
        if sizes[0] != 0 or sorted(sizes) != list(range(len(sizes))):
            return None
        back = [sizes.index(place) for place in range(len(sizes))]
        return Rearrangement(lambda x: x.permute(sizes), lambda y: y.permute(back))
    if 0 in sizes or name not in _TURNS or (name != "flip" and len(sizes) != 2):
        return None
    turn = _TURNS[name]
    return Rearrangement(lambda x: turn(x, sizes), lambda y: turn(y, sizes[::-1]))


def _indexing(steps: ForwardPass, node: fx.Node) -> Rearrangement | None:
    """The permutation that picking flat features by number is: x[:, order], x.index_select."""
    name, others = steps.operation(node), [*node.args[1:], *node.kwargs.values()]
    if name == "getitem" and isinstance(others[0], tuple) and len(others[0]) == 2:
        rows, order = others[0]
        if rows != slice(None):
            return None
    elif name == "index_select" and len(others) == 2 and others[0] == 1:
        order = others[1]
    else:
        return None
    if isinstance(order, list):
        order = torch.tensor(order)
    places = steps.constant(order)
    if places is None or places.ndim != 1:
        return None
    every = torch.arange(len(places), device=places.device)
    places = places.long()
    back = places.argsort()
    # In their own order they may be the first of more features.
    if not torch.equal(places[back], every) or torch.equal(places, every):
        return None
    return Rearrangement(
        lambda x: _pick(x, places),
        lambda y: _pick(y, back),
    )


def _pick(x: Tensor, places: Tensor) -> Tensor:
    """Flat features, (batch, features), in another order.

    Raises:
        ValueError: there are more or fewer of them.
    """
    if x.ndim != 2 or x.shape[1] != len(places):
        raise ValueError(f"expected (batch, {len(places)}) where features are put in order")
    return x[:, places.to(x.device)]


def read_affine(steps: ForwardPass, node: fx.Node) -> Affine | None:
    """What a node does with running statistics or constants, if it only scales and shifts.

    Raises:
        InputError: it erases what it is given.
    """
    layer = steps.layer(node)
    if layer is None:
        return _arithmetic(steps, node)
    if isinstance(layer, BATCH_NORMS):
        return _batch_norm(layer)
    return normalisation_of(layer)


def _arithmetic(steps: ForwardPass, node: fx.Node) -> Affine | None:
    """Addition, subtraction, multiplication or division of the input by a constant."""
    if len(node.args) != 2 or node.kwargs:
        return None
    left, right = (steps.constant(argument) for argument in node.args)
    constant = left if right is None else right
    if constant is None:
        return None
    return _affine(steps.operation(node), constant, reflected=right is None)


def _affine(operation: str, constant: Tensor, *, reflected: bool) -> Affine | None:
    """The step (x - offset) / scale that equals `x operation constant`, or its reflection."""
    zero, one = torch.zeros_like(constant), torch.ones_like(constant)
    if operation in _ADD:
        return Affine(-constant, one)
    if operation in _SUBTRACT:
        return Affine(constant, -one if reflected else one)
    if operation in _MULTIPLY:
        return Affine(zero, 1 / constant)
    if operation in _DIVIDE and not reflected:
        return Affine(zero, constant)
    return None
