"""What stands after the target's ReLU, and how much of it can be simulated.

Example:
    >>> root = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.Dropout(0.1))
    >>> steps = ForwardPass(root, fx.Tracer().trace(root))
    >>> tail = read_tail(steps, relu=steps.live[2], neurons=3)
    >>> tail.next_layer, tail.unknown
    (Linear(in_features=3, out_features=2, bias=True), "Dropout '3' is active")
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, fx, nn

from gradpeel.errors import UnsupportedModelError
from gradpeel.target.forward_pass import ForwardPass, is_linear
from gradpeel.target.unsteady import unsteady

__all__ = [
    "Raised",
    "Tail",
    "UnknownTailError",
    "read_next_layer",
    "read_raised_tail",
    "read_tail",
]


class UnknownTailError(UnsupportedModelError):
    """A network behind the target that is no function of each row alone.

    The target can be read without it.

    Attributes:
        what: the reason, in a phrase.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


class Tail(nn.Module):
    """What stands after the target's ReLU: outputs = tail(activations).

    Attributes:
        next_layer: the Linear that the activations enter first and only, if there is one.
        next_weight_name: its weight's name in the model.
        next_bias_name: its bias's name in the model, if it has a bias.
        rest: what follows the next layer, or the whole tail where there is none.
        unknown: why what the client computed cannot be simulated for one sample, in a phrase such
            as "Dropout '3' is active"; None for a tail that can be simulated.
        names: the model's name of each parameter, by its name here.
    """

    def __init__(
        self,
        rest: nn.Module,
        *,
        next_layer: nn.Linear | None = None,
        next_weight_name: str | None = None,
        next_bias_name: str | None = None,
        unknown: str | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.next_layer = next_layer
        self.next_weight_name = next_weight_name
        self.next_bias_name = next_bias_name
        self.rest = rest
        self.unknown = unknown
        self.names = dict(names or {})

    def forward(self, activations: Tensor) -> Tensor:
        """Map activations, (n, neurons), to outputs, (n, classes), in the mode the model is in."""
        if self.next_layer is not None:
            activations = self.next_layer(activations)
        outputs: Tensor = self.rest(activations)
        return outputs


class Raised(nn.Module):
    """An activation with a threshold and all that follows it, behind a ReLU.

    Args:
        rest: the activation and what follows it.
        low: the threshold.
    """

    def __init__(self, rest: nn.Module, low: float) -> None:
        super().__init__()
        self.rest, self.low = rest, low

    def forward(self, activations: Tensor) -> Tensor:
        """Map relu(z - low), (n, neurons), to outputs."""
        z = activations + self.low
        like = next(self.rest.parameters(), z)
        outputs: Tensor = self.rest(z.to(like.dtype))
        return outputs


def read_raised_tail(steps: ForwardPass, activation: fx.Node, low: float) -> Tail:
    """Take an activation that is constant below `low`, and what follows it, as the tail of a ReLU.

    See `gradpeel.target.gates`.
    """
    entry = next(node for node in activation.all_input_nodes if node in steps.varying)
    nodes = [activation, *steps.nodes_after(activation)]
    unknown = "; ".join(found.what for found in unsteady(steps, nodes)) or None
    tail = Tail(Raised(steps.module_after(entry), low), unknown=unknown)
    tail.names = {own: steps.parameter_names[id(p)] for own, p in tail.named_parameters()}
    return tail


def read_tail(steps: ForwardPass, relu: fx.Node, neurons: int) -> Tail:
    """Take what follows the ReLU, its first Linear apart if that alone takes all activations."""
    unknown = "; ".join(found.what for found in unsteady(steps, steps.nodes_after(relu))) or None
    if unknown is None and steps.consumers(relu, of_rows=True) == [steps.output]:
        unknown = "the model ends at the target"
    others = steps.inputs_after(relu)
    if others:
        named = ", ".join(steps.describe(node) for node in others)
        unknown = f"{named} enters the network behind the target"
    found = _next_layer(steps, relu, neurons)
    if found is None:
        tail = Tail(nn.Identity() if others else steps.module_after(relu), unknown=unknown)
    else:
        rest = nn.Identity() if others else steps.module_after(found[0])
        tail = _behind(steps, found[1], rest, unknown)
    tail.names = {own: steps.parameter_names[id(p)] for own, p in tail.named_parameters()}
    return tail


def read_next_layer(steps: ForwardPass, relu: fx.Node, neurons: int, unknown: str) -> Tail:
    """Take no more of what follows the ReLU than a Linear that alone takes all activations.

    Args:
        steps: the network.
        relu: the target's ReLU.
        neurons: number of the target's neurons.
        unknown: why nothing else is known.
    """
    found = _next_layer(steps, relu, neurons)
    nothing = nn.Identity()
    return (
        Tail(nothing, unknown=unknown)
        if found is None
        else _behind(steps, found[1], nothing, unknown)
    )


def _behind(steps: ForwardPass, layer: nn.Linear, rest: nn.Module, unknown: str | None) -> Tail:
    """A tail that begins with a Linear."""
    return Tail(
        rest,
        next_layer=layer,
        next_weight_name=steps.parameter_names[id(layer.weight)],
        next_bias_name=steps.parameter_names.get(id(layer.bias)),
        unknown=unknown,
    )


def _next_layer(
    steps: ForwardPass, relu: fx.Node, neurons: int
) -> tuple[fx.Node, nn.Linear] | None:
    """The Linear whose gradient is that of the activations and nothing else, if there is one."""
    consumers = steps.consumers(relu, of_rows=True)
    node, layer = consumers[0], steps.layer(consumers[0])
    if len(consumers) > 1 or not is_linear(layer) or layer.in_features != neurons:
        return None
    # Active dropout hands on other values than the activations.
    nodes = steps.nodes_after(relu)
    if unsteady(steps, nodes[: nodes.index(node)]):
        return None
    # Parameters that are computed, or serve elsewhere too, have a gradient of more than this layer.
    own = dict(layer.named_parameters(recurse=False))
    if "weight" not in own or any(len(steps.uses(parameter)) > 1 for parameter in own.values()):
        return None
    return node, layer
