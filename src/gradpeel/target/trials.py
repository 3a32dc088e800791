"""Run a network that was split on made-up samples: what reading its steps does not show.

Example:
    >>> tail = Tail(nn.Softmax(0))
    >>> try_tail(tail, torch.ones(8, 5))
    'the tail mixes the samples of a batch'
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradpeel.errors import ModelError, UnsupportedModelError
from gradpeel.inputs import NetworkInput
from gradpeel.target.derivatives import push
from gradpeel.target.features import FeatureFront, as_if_never_run
from gradpeel.target.front import Affine, Front
from gradpeel.target.tail import Tail, UnknownTailError
from gradpeel.target.tracing import shorten

__all__ = ["is_close", "reasons_not_reproduced", "reasons_not_reproduced_on", "try_tail"]


def try_tail(tail: Tail, weight: Tensor, layer: str = "target") -> str | None:
    """Try the tail on made-up activations: is it a function of each row alone, with derivatives?

    Args:
        tail: what stands after the target's ReLU.
        weight: the target's, (neurons, features).
        layer: the target's name.

    Returns:
        Why the tail cannot be simulated, in a phrase; None if it can.

    Raises:
        UnknownTailError: it fails, or does not give one row of outputs a sample.
        UnsupportedModelError: it does not give a tensor with values.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, len(weight), generator=generator, device="cpu").relu().to(weight)
    try:
        with as_if_never_run(tail):
            start = torch.get_rng_state()
            outputs = tail(rows)
            draws = not torch.equal(torch.get_rng_state(), start)
            again, some = tail(rows), tail(rows[[2, 0]])
    except Exception as error:
        message = f"the network behind Linear '{layer}' fails on 4 samples: {shorten(error)}"
        raise UnknownTailError(message) from error
    if not isinstance(outputs, Tensor):
        found = type(outputs).__name__
        raise UnsupportedModelError(f"the model returns a {found}: expected one tensor")
    is_table = outputs.ndim == 2 and len(outputs) == len(rows)
    if not is_table or not outputs.numel() or not outputs.is_floating_point():
        found = f"{tuple(outputs.shape)} of {outputs.dtype}"
        is_empty = not outputs.numel() or not outputs.is_floating_point()
        raise (UnsupportedModelError if is_empty else UnknownTailError)(
            f"behind Linear '{layer}', 4 samples give the output {found}: expected (4, classes)"
        )
    if tail.unknown is not None:
        return tail.unknown
    # A layer that is skipped now and then may well do the same twice: so ask the generator too.
    if draws or not is_close(outputs, again):
        return "the tail gives another output each time"
    if not is_close(outputs[[2, 0]], some):
        return "the tail mixes the samples of a batch"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about itself when it loads torch.func
            # What the decoder differentiates: behind the next layer, if there is one.
            entered = rows if tail.next_layer is None else tail.next_layer(rows)
            push(tail.rest, entered, entered)
    except Exception as error:  # noqa: BLE001 - a model's own forward may raise anything
        return f"the tail has no forward derivative ({shorten(error)})"
    return None


def reasons_not_reproduced(
    model: nn.Module, front: Front, parts: Callable[[Tensor], Tensor]
) -> list[ModelError]:
    """Compare the whole network with its parts on made-up samples, where it takes a shape we guess.

    A recorded forward pass does not show everything: not a forward hook that changes a value, nor
    that `+=` changes a tensor that has a second name.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, front.features, generator=generator, device="cpu")
    rows = rows.to(next(model.parameters()).device)
    sizes = [max(s.offset.numel(), s.scale.numel()) for s in front.steps if isinstance(s, Affine)]
    channels = max([1, *sizes])
    for shape in ((front.features,), (channels, front.features // channels, 1)):
        try:
            x = front.invert(rows, shape)
            with torch.no_grad(), as_if_never_run(model):
                outputs = model(x)
        except Exception:  # noqa: BLE001, S112 - another shape than the model takes: nothing to compare
            continue
        # Both draw the same random numbers: active dropout drops the same values.
        with torch.no_grad(), as_if_never_run(model):
            found = parts(x)
        if not is_close(outputs, found):
            return [_not_reproduced()]
        if channels == 1:
            break
    return []


def reasons_not_reproduced_on(
    x: NetworkInput, front: FeatureFront, parts: Callable[[Tensor], Tensor]
) -> list[ModelError]:
    """Compare the whole network with its target and tail on a batch of inputs.

    Args:
        x: (batch, *sample_shape) inputs.
        front: runs the network.
        parts: maps what enters the target to what the network puts out.
    """
    outputs, rows = front.run(x)
    with torch.no_grad():
        return [] if is_close(outputs, parts(rows)) else [_not_reproduced()]


def _not_reproduced() -> ModelError:
    return UnsupportedModelError("the steps recorded do not reproduce the model's output")


def is_close(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding: the order of a sum matters far less than the root of the precision."""
    tolerance = torch.finfo(a.dtype).eps ** 0.5
    scale = float(a.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return a.shape == b.shape and torch.allclose(a, b, tolerance, tolerance * scale, equal_nan=True)
