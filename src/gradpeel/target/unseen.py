"""A network whose forward pass cannot be recorded: its layer is read without what stands behind it.

A forward pass that branches on values has no graph, so nobody sees what follows a layer. But what
enters the layer can be seen when the network runs, and the structure of the update needs neither
the tail nor the loss: if ReLU does not follow, there are no silent neurons, and nothing is
certified. On a batch `check_followed_by_relu` makes sure.

Example:
    >>> class Branching(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.one, self.two = nn.Linear(12, 8), nn.Linear(8, 3)
    ...     def forward(self, x):
    ...         return self.two(self.one(x if x.sum() > 0 else -x).relu())
    >>> linear, front = see_layer(Branching(), "one", "it branches", share=False)
    >>> front.features, linear.out_features
    (12, 8)
    >>> check_followed_by_relu(front, torch.rand(4, 12))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gradpeel.errors import ModelRefusedError, UnsupportedModelError
from gradpeel.inputs import NetworkInput, cast_inputs, run_model
from gradpeel.target.features import FeatureFront, as_if_never_run
from gradpeel.target.forward_pass import is_linear
from gradpeel.target.refusals import reasons_of_linear
from gradpeel.target.tracing import copied
from gradpeel.target.unsteady import unsteady_modules

__all__ = ["check_followed_by_relu", "see_layer"]


def see_layer(
    model: nn.Module, layer: str, obstacle: str, *, share: bool
) -> tuple[nn.Linear, FeatureFront]:
    """The Linear of a name in a copy of a model, and the way to it.

    Nothing is known of what stands in front of it and what behind, so all parameters that are
    trained, and all that changes from run to run, may stand in front.

    Args:
        model: the network.
        layer: the name of one of its Linears.
        obstacle: why its forward pass is not known.
        share: let the copy use the values of the model's own parameters.

    Raises:
        ModelRefusedError: the layer cannot be read; lists every reason.
    """
    root = copied(model, share=share)
    linear = root.get_submodule(layer)
    if not is_linear(linear):
        raise ModelRefusedError([UnsupportedModelError(f"'{layer}' is not torch's own Linear")])
    trained = {id(parameter) for parameter in root.parameters() if parameter.requires_grad}
    reasons = reasons_of_linear(layer, linear, trained)
    if not reasons:
        own = [linear.weight, linear.bias]
        uses = [p for _, p in root.named_parameters(remove_duplicate=False)]
        if any(sum(use is parameter for use in uses) > 1 for parameter in own):
            reasons.append(
                UnsupportedModelError(f"Linear '{layer}' may share parameters with other layers")
            )
    if reasons:
        raise ModelRefusedError(reasons)
    others = {id(linear.weight), id(linear.bias)}
    changing = "; ".join(one.what for one in unsteady_modules(dict(root.named_modules())))
    front = FeatureFront(
        root,
        layer,
        linear.in_features,
        linear.weight.dtype,
        obstacle=obstacle,
        unsteady=changing or None,
        trained=tuple(
            name for name, p in root.named_parameters() if p.requires_grad and id(p) not in others
        ),
        tokenwise=True,
    )
    root.requires_grad_(requires_grad=False)
    return linear, front


def check_followed_by_relu(front: FeatureFront, x: NetworkInput) -> None:
    """Make sure on a batch that the outputs depend on a layer only where it is positive.

    Raises:
        ModelRefusedError: they do not.
    """
    seen: list[Tensor] = []

    def look(_: nn.Module, __: Any, z: Tensor) -> Tensor:  # noqa: ANN401 - torch's own signature
        seen.append(z.detach().requires_grad_())
        return seen[-1].clone()  # ReLU may work in place

    linear = front.model.get_submodule(front.layer)
    handle = linear.register_forward_hook(look)
    try:
        with as_if_never_run(front.model), torch.enable_grad():
            outputs = run_model(front.model, cast_inputs(front.model, x, front.dtype))
            if not isinstance(outputs, Tensor) or not seen:
                found = f"returns a {type(outputs).__name__}" if seen else "does not call it"
                message = f"Linear '{front.layer}': the model {found}"
                raise ModelRefusedError([UnsupportedModelError(message)])
            weights = torch.linspace(1, 2, outputs.numel(), dtype=outputs.dtype)
            total = (outputs * weights.reshape(outputs.shape)).sum()
    finally:
        handle.remove()
    (slope,) = torch.autograd.grad(total, seen[-1], materialize_grads=True)
    if bool(slope[seen[-1].detach() < 0].any()) or not bool(slope.any()):
        raise ModelRefusedError(
            [
                UnsupportedModelError(
                    f"Linear '{front.layer}' is not followed by ReLU alone: the outputs change "
                    "with its negative values, or do not depend on it"
                )
            ]
        )
