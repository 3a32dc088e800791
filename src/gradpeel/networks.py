"""Multilayer perceptrons: the paper's network, and any that a file of weights describes.

The paper draws first-layer weights from N(0, sigma^2) and later ones Xavier-uniform, and sets all
biases to zero (section "Experiments"). Every draw comes from the generator given, none from
PyTorch's own, so that a seed names a network.

Example:
    >>> import numpy as np
    >>> network = mlp(64, 10, hidden=(100,), rng=np.random.default_rng(0))
    >>> [tuple(parameter.shape) for parameter in network.parameters()]
    [(100, 64), (100,), (10, 100), (10,)]
    >>> [name for name, _ in mlp_from_state(network.state_dict()).named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradpeel.checks import is_plain_name
from gradpeel.designs.weights import check_sigma, draw_torch_default, draw_weights
from gradpeel.errors import InputError

__all__ = ["mlp", "mlp_from_state"]

MAX_WIDTH = 2**31


def mlp(
    features: int,
    classes: int,
    hidden: Sequence[int] = (1000,),
    *,
    rng: np.random.Generator,
    init: Literal["paper", "torch"] = "paper",
    sigma: float = 0.5,
    sample_shape: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
) -> nn.Sequential:
    """Build Linear, ReLU, ..., Linear with freshly drawn parameters.

    Args:
        features: Number of inputs F, positive.
        classes: Number of logits K, positive.
        hidden: Widths of the hidden layers, at least one; the first is the target's.
        rng: The source of randomness; the same state gives the same network.
        init: "paper" as above, or "torch" for PyTorch's default, biases included.
        sigma: Standard deviation of the paper's first layer, positive.
        sample_shape: Shape of a sample; if given, a `Flatten` comes first.
        dtype: Floating-point type of the parameters; the draws themselves are float64.

    Returns:
        The network.

    Raises:
        InputError: When a size, a setting or the sample's shape breaks its rule.
    """
    widths = (features, *hidden, classes)
    if not hidden:
        raise InputError(f"hidden={tuple(hidden)}: expected at least one hidden layer")
    if min(widths) < 1:
        raise InputError(
            f"features={features}, hidden={tuple(hidden)}, classes={classes}: "
            "expected positive sizes"
        )
    if max(widths) > MAX_WIDTH:
        raise InputError(
            f"a layer of {max(widths)} neurons or inputs: expected at most {MAX_WIDTH}"
        )
    if init not in {"paper", "torch"}:
        raise InputError(f"init={init!r}: expected 'paper' or 'torch'")
    check_sigma(sigma)
    if sample_shape is not None and math.prod(sample_shape) != features:
        raise InputError(f"sample_shape={tuple(sample_shape)}: expected {features} values in all")
    modules: list[nn.Module] = [] if sample_shape is None else [nn.Flatten()]
    for place, (fan_in, fan_out) in enumerate(pairwise(widths)):
        if init == "torch":
            weight, bias = draw_torch_default(fan_out, fan_in, rng)
        else:
            weight, bias = _draw_paper(place, fan_out, fan_in, rng, sigma), np.zeros(fan_out)
        layer = _linear(torch.from_numpy(weight).to(dtype), torch.from_numpy(bias).to(dtype))
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def _draw_paper(
    place: int, fan_out: int, fan_in: int, rng: np.random.Generator, sigma: float
) -> NDArray[np.float64]:
    if place == 0:
        return draw_weights("independent", fan_out, fan_in, rng, sigma=sigma)
    bound = math.sqrt(6 / (fan_in + fan_out))  # Xavier
    return rng.uniform(-bound, bound, size=(fan_out, fan_in))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    fan_out, fan_in = weight.shape
    # On "meta" PyTorch draws no initial values, which would move its global generator.
    layer = nn.Linear(fan_in, fan_out, device="meta")
    layer.weight, layer.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
    return layer


def mlp_from_state(state: Mapping[str, Tensor]) -> nn.Sequential:
    """Rebuild a multilayer perceptron with ReLU from its state dict alone.

    Layers are put in the order in which their shapes chain; where shapes leave a choice, in the
    order of their names, 2 before 10. The mapping's own order says nothing: a safetensors file
    keeps none.

    Args:
        state: Weights (out, in) and biases (out,) by parameter name, such as "0.weight",
            "fc1.bias" or "net.0.weight", and nothing else. The first layers of a deeper network
            will do; one layer alone is taken for a target, so ReLU follows it.

    Returns:
        The network; its parameters have the names and the values of `state`.

    Raises:
        InputError: When the tensors do not describe such a network; names the offending one.

    Example:
        >>> state = {"fc1.weight": torch.ones(5, 4), "fc1.bias": torch.ones(5)}
        >>> state |= {"fc2.weight": torch.ones(3, 5), "fc2.bias": torch.ones(3)}
        >>> mlp_from_state(state)
        Sequential(
          (fc1): Linear(in_features=4, out_features=5, bias=True)
          (fc1_relu): ReLU()
          (fc2): Linear(in_features=5, out_features=3, bias=True)
        )
    """
    layers = _chain(_pair_up(state))
    network = nn.Sequential()
    for layer in layers:
        _place(network, layer.path, _linear(layer.weight, layer.bias))
        if layer is not layers[-1] or len(layers) == 1:
            _place(network, f"{layer.path}_relu", nn.ReLU())
    built = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    for path, layer in zip(built, layers, strict=True):
        if path != layer.path:  # a.0, b.0, a.1: the blocks a and b do not follow one another
            raise InputError(f"{layer.path}.weight: expected before {path}.weight by their shapes")
    return network


@dataclass(frozen=True, eq=False)
class _NamedLayer:
    """One Linear of a state dict; `path` is where it stands in the network."""

    path: str
    weight: Tensor
    bias: Tensor

    @property
    def inputs(self) -> int:
        return self.weight.shape[1]

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def order(self) -> list[tuple[int, str]]:
        """Sorts paths as people do, numbers by value: that is by length, then by digits."""
        texts_and_numbers = re.split(r"0*([0-9]+)", self.path)
        return [(len(part) if at % 2 else 0, part) for at, part in enumerate(texts_and_numbers)]


def _pair_up(state: Mapping[str, Tensor]) -> list[_NamedLayer]:
    """Find the layers, each with a weight and a bias that fit each other."""
    dtypes = {tensor.dtype for tensor in state.values()}
    for name, tensor in state.items():
        path, _, kind = name.rpartition(".")
        if not path or kind not in {"weight", "bias"}:
            raise InputError(f"{name}: expected only names such as '0.weight' and '0.bias'")
        if len(dtypes) > 1 or not tensor.is_floating_point():
            raise InputError(f"{name} of dtype {tensor.dtype}: expected one floating-point type")
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{name} with NaN or infinite values: expected finite values")
        partner = f"{path}.bias" if kind == "weight" else f"{path}.weight"
        if partner not in state:
            raise InputError(f"{name} without {partner}: expected both")
        shape, partner_shape = tuple(tensor.shape), tuple(state[partner].shape)
        if kind == "weight" and (len(shape) != 2 or 0 in shape):
            raise InputError(f"{name} of shape {shape}: expected (out, in), not empty")
        if kind == "bias" and shape != partner_shape[:1]:
            raise InputError(f"{name} of shape {shape}: expected {partner_shape[:1]}")
    paths = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    if not paths:
        raise InputError("state of 0 layers: expected at least one")
    return [_NamedLayer(path, state[f"{path}.weight"], state[f"{path}.bias"]) for path in paths]


def _chain(layers: list[_NamedLayer]) -> list[_NamedLayer]:
    """Order layers so that what one puts out the next takes in; equal shapes go by their names."""
    waiting = sorted(layers, key=lambda layer: layer.order)
    makers = Counter(layer.outputs for layer in layers)
    # The first layer takes what no other puts out. Where none is such (the input is as wide as
    # some hidden layer), the names decide.
    firsts = [one for one in waiting if makers[one.inputs] == (one.inputs == one.outputs)]
    chain = [firsts[0] if firsts else waiting[0]]
    waiting.remove(chain[0])
    while waiting:
        width = chain[-1].outputs
        at = next((at for at, one in enumerate(waiting) if one.inputs == width), None)
        if at is None:
            raise InputError(
                f"{waiting[0].path}.weight of shape {tuple(waiting[0].weight.shape)}: expected "
                f"{width} inputs, the outputs of {chain[-1].path}.weight"
            )
        chain.append(waiting.pop(at))
    return chain


def _place(network: nn.Sequential, path: str, module: nn.Module) -> None:
    """Put a module at a dotted path of nested `Sequential` blocks."""
    *blocks, leaf = path.split(".")
    block = network
    for part in blocks:
        child = dict(block.named_children()).get(part)
        if child is None:
            child = nn.Sequential()
            _add(block, part, child, path)
        if not isinstance(child, nn.Sequential):
            raise InputError(f"{path}: expected a path that does not lead through a layer")
        block = child
    _add(block, leaf, module, path)


def _add(block: nn.Sequential, name: str, module: nn.Module, path: str) -> None:
    # "forward", say: PyTorch keeps such names for itself.
    if not name or not is_plain_name(name) or hasattr(block, name):
        raise InputError(f"{path}: expected a path of free and plain module names")
    block.add_module(name, module)
