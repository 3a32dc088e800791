"""Why a network cannot be audited: every reason, each of a kind that says what to do about it.

The method needs a Linear layer with a bias, followed by ReLU, whose gradient is a sum over samples
that do not see one another (paper, section "Architectural Assumptions"). What breaks this for good
is an `ImpossibleModelError`, what gradpeel does not do yet an `UnsupportedModelError`, and what the
user can change in the model they have a `ModelSettingError`.

Example:
    >>> [str(reason) for reason in reasons_in_modules(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))]
    ["Dropout '1' is active: call model.eval()"]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from gradpeel.errors import (
    ImpossibleModelError,
    ModelError,
    ModelSettingError,
    UnsupportedModelError,
)
from gradpeel.target.forward_pass import BATCH_NORMS, DROPOUTS, ForwardPass
from gradpeel.target.front import Affine, Front
from gradpeel.target.tracing import shorten

__all__ = [
    "reason_without_linear",
    "reasons_after_target",
    "reasons_at_target",
    "reasons_in_modules",
    "reasons_in_steps",
    "reasons_not_reproduced",
    "reasons_unreadable",
]

# Activations with a gradient (almost) everywhere: every neuron then fires on every sample.
_FIRING_EVERYWHERE = {
    "celu", "elu", "gelu", "glu", "hardswish", "leakyrelu", "logsigmoid", "logsoftmax", "mish",
    "prelu", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softsign",
    "tanh", "tanhshrink",
}  # fmt: skip
# Wrappers that hide the forward pass, and where they keep the model.
_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
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
                f"{_named(modules, empty)} without weights yet: "
                "load them, or run the model once on a batch"
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
    dropouts = [name for name, module in modules.items() if module.training and _drops(module)]
    norms = {name: module for name, module in modules.items() if isinstance(module, BATCH_NORMS)}
    active = [name for name, module in norms.items() if module.training]
    baseless = [
        name
        for name, module in norms.items()
        if module.running_mean is None and not module.training
    ]
    quantised = [name for name, module in modules.items() if "quantized" in type(module).__module__]
    complex_ = [name for name, parameter in model.named_parameters() if parameter.is_complex()]
    reasons: list[ModelError] = []
    for names, change in (
        (dropouts, "active: call model.eval()"),
        (active, "in training mode, where it mixes the samples of a batch: call model.eval()"),
        (baseless, "without running statistics, so it mixes a batch: use track_running_stats=True"),
    ):
        if names:
            reasons.append(ModelSettingError(f"{_named(modules, names)} {change}"))
    if quantised:
        reasons.append(UnsupportedModelError(f"{_named(modules, quantised)} quantised"))
    if complex_:
        reasons.append(UnsupportedModelError(f"parameter '{complex_[0]}' is complex"))
    return reasons


def reasons_in_steps(steps: ForwardPass) -> list[ModelError]:
    """What the recorded forward pass tells before its target is known."""
    reasons: list[ModelError] = []
    if len(steps.inputs) > 1:
        names = ", ".join(str(node.target) for node in steps.inputs)
        reasons.append(UnsupportedModelError(f"forward takes {len(steps.inputs)} inputs: {names}"))
    if not isinstance(steps.output.args[0], fx.Node):
        kind = type(steps.output.args[0]).__name__
        reasons.append(UnsupportedModelError(f"the model returns a {kind}: expected one tensor"))
    trained = [
        steps.operation(node)
        for node in steps.live
        if (arguments := steps.arguments(node)).get("training") is True and arguments.get("p") != 0
    ]
    reasons += [
        ModelSettingError(
            f"{name} is called with training=True: "
            "pass training=self.training and call model.eval()"
        )
        for name in dict.fromkeys(trained)
    ]
    return reasons


def reason_without_linear(steps: ForwardPass) -> ModelError:
    """Why no Linear layer works on the input."""
    products = [node for node in steps.live if steps.operation(node) in _PRODUCTS]
    if products:
        return UnsupportedModelError(
            f"{steps.describe(products[0])} is not called as a torch.nn.Linear layer of the model, "
            "and gradpeel reads no other"
        )
    return ImpossibleModelError("no Linear layer found")


def reasons_at_target(steps: ForwardPass, target: fx.Node, layer: nn.Linear) -> list[ModelError]:
    """What is wrong with the target itself, or with what follows it directly."""
    name = str(target.target)
    own = dict(layer.named_parameters(recurse=False))
    reasons: list[ModelError] = []
    bias = getattr(layer, "bias", None)
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
                f"Linear '{name}' has no bias: without its gradient there is no ratio to take"
            )
        )
    reasons += [
        ModelSettingError(f"'{name}.{key}' has requires_grad=False, so no gradient: set it to True")
        for key, parameter in own.items()
        if not parameter.requires_grad
    ]
    reasons += _reasons_sharing(steps, target, own.values())
    return reasons + _reasons_activation(steps, target)


def reasons_after_target(tail: nn.Module, weight: Tensor) -> list[ModelError]:
    """Try the tail on made-up activations: is it a function of each row alone, with derivatives?"""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, len(weight), generator=generator).relu().to(weight)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about itself when it loads torch.func
            logits = torch.func.jvp(tail, (rows,), (rows,))[0]
            again, some = tail(rows), tail(rows[[2, 0]])
    except Exception as error:  # noqa: BLE001 - a model's own forward may raise anything
        return [UnsupportedModelError(f"the network after the target fails: {shorten(error)}")]
    if not isinstance(logits, Tensor):
        found = type(logits).__name__
        return [UnsupportedModelError(f"the model returns a {found}: expected one tensor")]
    if logits.ndim != 2 or len(logits) != len(rows) or not logits.is_floating_point():
        found = f"{tuple(logits.shape)} of {logits.dtype}"
        return [UnsupportedModelError(f"4 samples give the output {found}: expected (4, classes)")]
    if not _close(logits, again):
        return [
            UnsupportedModelError("the network after the target gives another output each time")
        ]
    if not _close(logits[[2, 0]], some):
        return [UnsupportedModelError("the network after the target mixes the samples of a batch")]
    return []


def reasons_not_reproduced(
    model: nn.Module, front: Front, parts: Callable[[Tensor], Tensor]
) -> list[ModelError]:
    """Compare the whole network with its parts on made-up samples, where it takes a shape we guess.

    A recorded forward pass does not show everything: not a forward hook that changes a value, nor
    that `+=` changes a tensor that has a second name.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, front.features, generator=generator)
    rows = rows.to(next(model.parameters()).device)
    sizes = [max(s.offset.numel(), s.scale.numel()) for s in front.steps if isinstance(s, Affine)]
    channels = max([1, *sizes])
    for shape in ((front.features,), (channels, front.features // channels, 1)):
        try:
            with torch.no_grad():
                x = front.invert(rows, shape)
                logits = model(x)
        except Exception:  # noqa: BLE001, S112 - another shape than the model takes: nothing to compare
            continue
        if not _close(logits, parts(x)):
            return [UnsupportedModelError("the steps recorded do not reproduce the model's output")]
    return []


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
    consumers = steps.consumers(target)
    if len(consumers) > 1:
        where = ", ".join(steps.describe(node) for node in consumers)
        return [
            UnsupportedModelError(
                f"the output of Linear '{name}' is used by {where}: expected ReLU alone"
            )
        ]
    activation = consumers[0]
    if steps.is_relu(activation):
        around = ", ".join(steps.describe(node) for node in steps.ways_around(activation))
        return (
            [UnsupportedModelError(f"{around} takes a value around the target (a skip connection)")]
            if around
            else []
        )
    followed = f"Linear '{name}' is followed by {steps.describe(activation)}, not by ReLU"
    if activation.op == "output" or isinstance(steps.layer(activation), nn.Linear):
        return [
            ImpossibleModelError(f"{followed}: without ReLU every neuron fires on every sample")
        ]
    if steps.operation(activation).replace("_", "").lower() in _FIRING_EVERYWHERE:
        return [ImpossibleModelError(f"{followed}: every neuron fires on every sample")]
    return [UnsupportedModelError(followed)]


def _drops(module: nn.Module) -> bool:
    """Whether a module drops values in training: dropout, or attention and recurrence with it."""
    rate = module.p if isinstance(module, DROPOUTS) else getattr(module, "dropout", 0.0)
    return isinstance(rate, int | float) and rate > 0


def _named(modules: dict[str, nn.Module], names: list[str]) -> str:
    listed = ", ".join(f"{type(modules[name]).__name__} '{name}'" for name in names)
    return f"{listed} {'are' if len(names) > 1 else 'is'}"


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding: the order of a sum matters far less than the root of the precision."""
    tolerance = torch.finfo(a.dtype).eps ** 0.5
    scale = float(a.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return a.shape == b.shape and torch.allclose(a, b, tolerance, tolerance * scale, equal_nan=True)
