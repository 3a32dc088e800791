"""Why a network cannot be audited: every reason, each of a kind that says what to do about it.

The method needs a Linear layer with a bias, followed by ReLU, whose gradient is a sum over samples
that do not see one another (paper, section "Architectural Assumptions"). Where that does not hold,
this attack does not apply, an `ImpossibleModelError`; what gradpeel does not do yet is an
`UnsupportedModelError`, and what the user can change in the model they have a `ModelSettingError`.
None of them says that the network is safe: other attacks have other assumptions.

Example:
    >>> reasons_unreadable(nn.DataParallel(nn.Linear(2, 2)))
    [ModelSettingError('the model is wrapped in DataParallel: pass model.module')]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from gradpeel.checks import DTYPES, count_not_finite, is_plain_name
from gradpeel.errors import (
    ImpossibleModelError,
    ModelError,
    ModelSettingError,
    UnsupportedModelError,
)
from gradpeel.target.forward_pass import BATCH_NORMS, ForwardPass, bias_of
from gradpeel.target.gates import mixes, read_gate, read_scaling
from gradpeel.target.tail import UnknownTailError
from gradpeel.target.unsteady import named, unsteady

__all__ = [
    "is_followed_by_firing",
    "reason_without_linear",
    "reasons_at_target",
    "reasons_hooked",
    "reasons_in_modules",
    "reasons_in_steps",
    "reasons_not_finite",
    "reasons_of_linear",
    "reasons_unreadable",
]

# Activations with a gradient (almost) everywhere: every neuron then fires on every sample.
_FIRING_EVERYWHERE = {
    "celu", "elu", "gelu", "glu", "hardswish", "leakyrelu", "logsigmoid", "logsoftmax", "mish",
    "prelu", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softsign",
    "tanh", "tanhshrink",
}  # fmt: skip
# Those of them with two slopes, of which a row cascade could guess one for each neuron.
_TWO_SLOPES = {"leakyrelu", "prelu", "rrelu"}
# Wrappers that hide the forward pass, and where they keep the model.
_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
_OTHER = "choose another layer, if there is one"
_PRODUCTS = {"Linear", "addmm", "linear", "matmul", "mm"}


def reasons_unreadable(model: nn.Module) -> list[ModelError]:
    """What keeps the model's forward pass from being read at all."""
    reasons: list[ModelError] = []
    modules = dict(model.named_modules())
    empty = [
        name
        for name, module in modules.items()
        if any(is_lazy(p) or p.is_meta for p in module.parameters(recurse=False))
    ]
    if empty:
        reasons.append(
            ModelSettingError(
                f"{named(modules, empty)} without weights yet: "
                "load them, or run the model once on a batch"
            )
        )
    odd = [
        name
        for name, _ in (*model.named_modules(), *model.named_parameters(), *model.named_buffers())
        if not all(map(is_plain_name, name.split(".")))
    ]
    if odd:
        reasons.append(
            UnsupportedModelError(
                f"{odd[0]!r} cannot be written in a line of code, as torch.fx does: rename it"
            )
        )
    wrapper = type(model).__name__
    if wrapper in _WRAPPERS:
        reasons.append(
            ModelSettingError(f"the model is wrapped in {wrapper}: pass model.{_WRAPPERS[wrapper]}")
        )
    if isinstance(model, torch.jit.ScriptModule):
        reasons.append(UnsupportedModelError("the model is compiled by torch.jit"))
    return reasons


def reasons_in_modules(model: nn.Module) -> list[ModelError]:
    """What the model's modules tell before its forward pass is read."""
    modules = dict(model.named_modules())
    quantised = [name for name, module in modules.items() if "quantized" in type(module).__module__]
    complex_ = [name for name, parameter in model.named_parameters() if parameter.is_complex()]
    short = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
    short = {name: p for name, p in short.items() if p.dtype not in DTYPES}
    reasons: list[ModelError] = []
    if quantised:
        reasons.append(UnsupportedModelError(f"{named(modules, quantised)} quantised"))
    if complex_:
        reasons.append(UnsupportedModelError(f"parameter '{complex_[0]}' is complex"))
    if short:
        name, parameter = next(iter(short.items()))
        reasons.append(UnsupportedModelError(f"parameter '{name}' is of {parameter.dtype}"))
    return reasons


def reasons_in_steps(steps: ForwardPass) -> list[ModelError]:
    """What the recorded forward pass shows before its target is known."""
    reasons: list[ModelError] = []
    returned = steps.output.args[0]
    kind = returned.target if isinstance(returned, fx.Node) else type(returned)
    if isinstance(kind, type):  # a tuple with names is made by calling its class
        reasons.append(
            UnsupportedModelError(f"the model returns a {kind.__name__}: expected one tensor")
        )
    return reasons


def reasons_not_finite(steps: ForwardPass) -> list[ModelError]:
    """Parameters and buffers of the forward pass with values that are not finite.

    No neuron fires on NaN, so such a network would seem to give nothing away. Infinity is allowed
    in buffers that are not statistics: a mask may be made of it.
    """
    found: list[str] = []
    for node in steps.live:
        for name, tensor, may_be_infinite in _values(steps, node):
            values = tensor.nan_to_num(torch.nan, 0.0, 0.0) if may_be_infinite else tensor
            bad = count_not_finite(values)
            if bad:
                found.append(f"'{name}': {bad} of {tensor.numel()} values are not finite")
    if not found:
        return []
    first, *others = dict.fromkeys(found)
    more = f" (and those of {len(others)} more)" if others else ""
    return [ModelSettingError(f"{first}{more}: load weights that are")]


def _values(steps: ForwardPass, node: fx.Node) -> list[tuple[str, Tensor, bool]]:
    """Tensors that a step computes with: name, value, and whether infinity may be meant."""
    path, layer = str(node.target), steps.layer(node)
    if node.op == "get_attr":
        value = attrgetter(path)(steps.module)
        return [(path, value, not isinstance(value, nn.Parameter))]
    if layer is None:
        return []
    names = steps.parameter_names
    found: list[tuple[str, Tensor, bool]] = [
        (names.get(id(p), path), p, False) for p in layer.parameters()
    ]
    for name, module in layer.named_modules(prefix=path):
        is_norm = isinstance(module, BATCH_NORMS)
        if is_norm and module.training:  # it goes by the batch
            continue
        buffers = module.named_buffers(prefix=name, recurse=False)
        found += [(key, buffer, not is_norm) for key, buffer in buffers]
    return found


def reason_without_linear(steps: ForwardPass, layer: str | None) -> ModelError:
    """Why no Linear layer, or none of that name, works on the input."""
    if layer is not None:
        return UnsupportedModelError(
            f"Linear '{layer}' is not a step of its own in the forward pass: it is not called, "
            "does not act on the input, or stands inside a module that gradpeel does not look into"
        )
    products = [node for node in steps.live if steps.operation(node) in _PRODUCTS]
    if products:
        return UnsupportedModelError(
            f"{steps.describe(products[0])} is not called as a torch.nn.Linear layer of the model, "
            "and gradpeel reads no other"
        )
    return ImpossibleModelError(
        "no Linear layer found: the gradients of other layers have to be read in other ways"
    )


def reasons_at_target(steps: ForwardPass, target: fx.Node, layer: nn.Linear) -> list[ModelError]:
    """What is wrong with the target itself, or with what follows it directly."""
    gate = read_gate(steps, target)
    instead = gate.bias_of(layer) if gate is not None and bias_of(layer) is None else None
    reasons = _reasons_between(steps, target)
    reasons += reasons_of_linear(str(target.target), layer, steps.trained, instead)
    reasons += _reasons_sharing(steps, target, layer.parameters(recurse=False))
    return reasons + _reasons_activation(steps, target)


def reasons_of_linear(
    name: str,
    layer: nn.Linear,
    trained: Collection[int],
    instead: nn.Parameter | None = None,
) -> list[ModelError]:
    """What is wrong with a Linear by itself.

    Args:
        name: its name in the model.
        layer: the Linear.
        trained: ids of the parameters that have a gradient.
        instead: the parameter that serves as its bias, where it has none.
    """
    own = dict(layer.named_parameters(recurse=False))
    reasons: list[ModelError] = []
    if layer.in_features == 0 or layer.out_features == 0:
        reasons.append(
            ImpossibleModelError(
                f"Linear '{name}' has {layer.in_features} inputs and {layer.out_features} outputs: "
                "there is nothing to read"
            )
        )
    bias = instead if bias_of(layer) is None else bias_of(layer)
    if instead is not None:
        own["bias"] = instead
    if "weight" not in own or ("bias" not in own and bias is not None):
        reasons.append(
            UnsupportedModelError(
                f"Linear '{name}' computes its weight from other parameters "
                "(weight_norm, spectral_norm or another parametrisation)"
            )
        )
    if bias is None:
        reasons.append(
            ImpossibleModelError(
                f"Linear '{name}' has no bias, whose gradient gives the scale of a sample; of a "
                "batch of one, any neuron's weight gradient shows the sample up to its scale"
            )
        )
    reasons += [
        ModelSettingError(
            f"'{name}.{key}' has requires_grad=False, so no gradient: set it to True if the client "
            "trains it"
        )
        for key, parameter in own.items()
        if id(parameter) not in trained
    ]
    return reasons


def reasons_hooked(steps: ForwardPass, target: fx.Node) -> list[ModelError]:
    """Forward hooks at the target, which may change what it hands on without being recorded."""
    _, consumers = read_scaling(steps, target)
    layers = {node: steps.layer(node) for node in (target, *consumers)}
    return [
        UnsupportedModelError(f"{steps.describe(node)} has a forward hook: remove it")
        for node, layer in layers.items()
        if layer is not None and layer._forward_hooks  # noqa: SLF001 - torch has no other way
    ]


def _reasons_between(steps: ForwardPass, target: fx.Node) -> list[ModelError]:
    """What keeps the pre-activations from being those of one sample alone, the same each time."""
    activation = read_scaling(steps, target)[1][0]
    elsewhere = {*steps.nodes_before(target), activation, *steps.nodes_after(activation)}
    between = [
        node for node in steps.live if node not in elsewhere and target in steps.nodes_before(node)
    ]
    return [
        ModelSettingError(
            f"{one.what}, between Linear '{target.target}' and its activation: {one.change}"
        )
        for one in unsteady(steps, between)
    ]


def _reasons_sharing(
    steps: ForwardPass, target: fx.Node, parameters: Iterable[Tensor]
) -> list[ModelError]:
    name = str(target.target)
    users = [node for parameter in parameters for node in steps.uses(parameter)]
    others = list(dict.fromkeys(node for node in users if node is not target))
    again = [node for node in others if steps.layer(node) is steps.layer(target)]
    shared = [node for node in others if node not in again]
    reasons: list[ModelError] = []
    if again:
        reasons.append(
            ImpossibleModelError(
                f"Linear '{name}' is called {len(again) + 1} times: its gradient adds up all calls"
            )
        )
    if shared:
        where = ", ".join(
            f"'{node.target}'" if node.op == "get_attr" else steps.describe(node) for node in shared
        )
        reasons.append(
            ImpossibleModelError(
                f"Linear '{name}' shares its parameters with {where}: its gradient adds up all uses"
            )
        )
    return reasons


def _reasons_activation(steps: ForwardPass, target: fx.Node) -> list[ModelError]:
    name = str(target.target)
    _, consumers = read_scaling(steps, target)
    if len(consumers) > 1:
        where = ", ".join(steps.describe(node) for node in consumers)
        return [
            UnsupportedModelError(
                f"the output of Linear '{name}' is used by {where}, not by ReLU alone: {_OTHER}"
            )
        ]
    activation = consumers[0]
    if read_gate(steps, target) is not None:
        if not steps.consumers(activation):
            return [
                ImpossibleModelError(
                    f"the output depends on Linear '{name}' only by its shape: it has no gradient"
                )
            ]
        around = ", ".join(steps.describe(node) for node in steps.ways_around(activation))
        what = f"{around} takes a value around Linear '{name}' (a skip connection)"
        return [UnknownTailError(what)] if around else []
    followed = f"Linear '{name}' is followed by {steps.describe(activation)}, not by ReLU"
    layer = steps.layer(activation)
    if isinstance(layer, BATCH_NORMS) and mixes(layer):
        return [
            ImpossibleModelError(
                f"{followed}, and it uses the statistics of the batch: its gradient subtracts the "
                "mean of the batch, so that every sample takes part in every neuron and the bias "
                "gradient is zero; evaluation mode, where it only scales, can be audited"
            )
        ]
    is_last = activation.op == "output" or isinstance(layer, nn.Linear)
    if is_last or _fires_everywhere(steps, activation):
        return [_reason_firing(followed, has_two_slopes=_word(steps, activation) in _TWO_SLOPES)]
    return [UnsupportedModelError(f"{followed}: {_OTHER}")]


def is_followed_by_firing(steps: ForwardPass, target: fx.Node) -> bool:
    """Whether a Linear is followed by an activation with a gradient everywhere, such as GELU."""
    _, consumers = read_scaling(steps, target)
    return len(consumers) == 1 and _fires_everywhere(steps, consumers[0])


def _reason_firing(followed: str, *, has_two_slopes: bool) -> ModelError:
    """Why every neuron fires on every sample, and what that does not exclude."""
    one = (
        "a batch of one is read at once, by dividing any neuron's weight gradient by its bias "
        "gradient, unless the layer acts on every token of a sequence"
    )
    every = f"{followed}: every neuron fires on every sample, so that"
    if has_two_slopes:
        return UnsupportedModelError(
            f"{every} peeling cannot start, and the row cascade is not made for two slopes; {one}"
        )
    return ImpossibleModelError(f"{every} no cascade can start; {one}")


def _fires_everywhere(steps: ForwardPass, activation: fx.Node) -> bool:
    return _word(steps, activation) in _FIRING_EVERYWHERE


def _word(steps: ForwardPass, activation: fx.Node) -> str:
    """What a node does, however it is written: "leakyrelu" for LeakyReLU and leaky_relu_."""
    return steps.operation(activation).replace("_", "").lower()
