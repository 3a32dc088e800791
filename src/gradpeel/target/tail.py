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

from gradpeel.target.forward_pass import ForwardPass, is_linear
from gradpeel.target.unsteady import unsteady

__all__ = ["Tail", "read_tail"]


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
        node, layer = found
        tail = Tail(
            nn.Identity() if others else steps.module_after(node),
            next_layer=layer,
            next_weight_name=steps.parameter_names[id(layer.weight)],
            next_bias_name=steps.parameter_names.get(id(layer.bias)),
            unknown=unknown,
        )
    tail.names = {own: steps.parameter_names[id(p)] for own, p in tail.named_parameters()}
    return tail


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
