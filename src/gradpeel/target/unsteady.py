"""Steps that do not treat each sample alone and alike: active dropout, batch norm in training mode.

In front of the target's ReLU they are a reason to refuse the network. Behind it a client may well
have them: the gradients are sums over samples all the same, but the tail cannot be simulated.

Example:
    >>> root = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.1))
    >>> steps = ForwardPass(root, fx.Tracer().trace(root))
    >>> unsteady(steps, steps.live)
    [Unsteady(what="Dropout '2' is active", change='call model.eval()')]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import fx, nn

from gradpeel.target.forward_pass import BATCH_NORMS, DROPOUTS, ForwardPass

__all__ = ["Unsteady", "named", "unsteady", "unsteady_modules"]


@dataclass(frozen=True)
class Unsteady:
    """Steps of one kind that draw random numbers or mix the samples of a batch.

    Attributes:
        what: the steps, and what they do.
        change: what makes them steady.
    """

    what: str
    change: str


def unsteady(steps: ForwardPass, nodes: Iterable[fx.Node]) -> list[Unsteady]:
    """Find the unsteady steps among `nodes`, one entry a kind."""
    modules: dict[str, nn.Module] = {}
    calls: list[str] = []
    for node in nodes:
        layer = steps.layer(node)
        arguments = steps.arguments(node)
        if layer is not None:
            modules.update(layer.named_modules(prefix=str(node.target)))
        elif arguments.get("training") is True and arguments.get("p") != 0:
            calls.append(steps.operation(node))
    return unsteady_modules(modules) + [
        Unsteady(
            f"{name} is called with training=True",
            "pass training=self.training and call model.eval()",
        )
        for name in dict.fromkeys(calls)
    ]


def unsteady_modules(modules: Mapping[str, nn.Module]) -> list[Unsteady]:
    """Find the unsteady modules among some, one entry per kind."""
    norms = {name: module for name, module in modules.items() if isinstance(module, BATCH_NORMS)}
    kinds = (
        (
            [name for name, module in modules.items() if module.training and _drops(module)],
            "active",
            "call model.eval()",
        ),
        (
            [name for name, norm in norms.items() if norm.training],
            "in training mode, where it mixes the samples of a batch",
            "call model.eval()",
        ),
        (
            [
                name
                for name, norm in norms.items()
                if norm.running_mean is None and not norm.training
            ],
            "without running statistics, so it mixes a batch",
            "use track_running_stats=True",
        ),
    )
    return [Unsteady(f"{named(modules, names)} {how}", fix) for names, how, fix in kinds if names]


def named(modules: Mapping[str, nn.Module], names: list[str]) -> str:
    """Modules in the words of a message: "Dropout '0', Dropout '3' are"."""
    listed = ", ".join(f"{type(modules[name]).__name__} '{name}'" for name in names)
    return f"{listed} {'are' if len(names) > 1 else 'is'}"


def _drops(module: nn.Module) -> bool:
    """Whether a module drops values in training: dropout, or attention and recurrence with it."""
    rate = module.p if isinstance(module, DROPOUTS) else getattr(module, "dropout", 0.0)
    return isinstance(rate, int | float) and rate > 0
