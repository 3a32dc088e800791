"""What is asked of an inversion, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradpeel.checks import as_tensor, count_not_finite, is_list, is_number
from gradpeel.decoder import Recovery
from gradpeel.errors import InputError
from gradpeel.inversion.forward import has_slope
from gradpeel.target import FeatureFront

__all__ = ["check_features", "check_shape", "check_takes", "check_values"]


def check_shape(sample_shape: object) -> tuple[int, ...]:
    """The shape of one input.

    Raises:
        InputError: it is not a list of positive integers.
    """
    sizes = list(sample_shape) if is_list(sample_shape) else [None]
    shape = tuple(
        size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0
    )
    if not shape or len(shape) < len(sizes):
        raise InputError(f"sample_shape={sample_shape!r}: expected positive integers")
    return shape


def check_features(features: object, width: int) -> Tensor:
    """Feature vectors, (n, features).

    Raises:
        InputError: they are samples already, have another width, or are not finite.
    """
    if isinstance(features, Recovery):
        if features.space == "input":
            raise InputError(
                "features: recovered samples are inputs already: there is nothing to invert"
            )
        features = features.samples
    rows = as_tensor("features", features).detach()
    if rows.ndim != 2 or rows.shape[1] != width or not rows.is_floating_point():
        raise InputError(
            f"features of shape {tuple(rows.shape)} and dtype {rows.dtype}: expected "
            f"(n, {width}) numbers, as many as enter the layer"
        )
    bad = count_not_finite(rows)
    if bad:
        raise InputError(f"features: {bad} of {rows.numel()} values are not finite")
    return rows


def check_takes(front: FeatureFront, shape: tuple[int, ...]) -> None:
    """Make sure that the network takes inputs of a shape, and that features lead back to them.

    Raises:
        InputError: names the shape, or the layer.
    """
    try:
        rows = front(torch.zeros((2, *shape)))
    except InputError as error:
        raise InputError(f"sample_shape={shape}: {error}") from None
    if len(rows) != 2:
        raise InputError(
            f"layer {front.layer!r}: {len(rows) // 2} rows of each input enter it, one per token: "
            "expected one row per input, because inputs are reconstructed from one row each"
        )
    if not has_slope(front, shape):
        raise InputError(
            f"layer {front.layer!r}: its features have no derivative with respect to the input, as "
            "after rounding: expected a network that is differentiable in front of the layer"
        )


def check_values(values: Sequence[float] | Tensor | None) -> Tensor | None:
    """The only values that inputs can have, in order.

    Raises:
        InputError: fewer than two of them, or they are not finite numbers.
    """
    if values is None:
        return None
    allowed: Tensor = torch.unique(as_tensor("values", values, torch.float64).flatten())
    if len(allowed) < 2 or not all(map(is_number, allowed.tolist())):
        raise InputError(f"values={values!r}: expected two finite numbers at least")
    return allowed
