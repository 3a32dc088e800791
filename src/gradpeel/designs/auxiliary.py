"""What a design does with samples of the server's own: rows of the target, and thresholds on them.

Example:
    >>> values = np.array([[0.0], [1.0], [4.0]])
    >>> thresholds_between(values, np.array([2]), np.array([1.0]))  # two of three exceed it
    array([0.5])
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.checks import check_dense
from gradpeel.designs.layer import ToRows
from gradpeel.errors import InputError

__all__ = ["auxiliary_rows", "check_auxiliary", "thresholds_between"]


def check_auxiliary(auxiliary: Tensor) -> None:
    """Raise `InputError` unless `auxiliary` is a batch of finite samples in floating point."""
    check_dense("auxiliary", auxiliary)
    shape = tuple(auxiliary.shape)
    if len(shape) < 2 or 0 in shape:
        raise InputError(f"auxiliary of shape {shape}: expected (batch, *sample_shape), not empty")
    if not auxiliary.is_floating_point():
        # Raw bytes would pass for features of 0 to 255 and give useless thresholds.
        raise InputError(
            f"auxiliary of dtype {auxiliary.dtype}: expected floating point, scaled like the batch"
        )
    if not bool(auxiliary.isfinite().all()):
        raise InputError("auxiliary with NaN or infinite values: expected finite values")


def auxiliary_rows(auxiliary: Tensor, features: int, front: ToRows) -> NDArray[np.float64]:
    """The auxiliary batch as the target sees it, (batch, features).

    Raises:
        InputError: When `front` does not map the samples to rows of the target's width.
    """
    try:
        with torch.no_grad():
            rows = front(auxiliary.double())
    except InputError as error:
        raise InputError(f"auxiliary: {error}") from error
    if rows.shape != (len(auxiliary), features):
        raise InputError(
            f"auxiliary of shape {tuple(auxiliary.shape)} gives rows of "
            f"{tuple(rows.shape)}: expected ({len(auxiliary)}, {features}) for the target"
        )
    return np.asarray(rows.cpu().numpy(), dtype=np.float64)


def thresholds_between(
    preactivations: NDArray[np.float64],
    degrees: NDArray[np.int64],
    spread: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Thresholds (neurons,) that `degrees` of the `preactivations` (batch, neurons) exceed.

    No threshold parts equal values: where the d-th and (d+1)-th largest coincide, it falls on them.

    Args:
        preactivations: (batch, neurons) of the auxiliary samples.
        degrees: (neurons,) each in 1..batch.
        spread: (neurons,) a distance to use where the samples give none.
    """
    rising = np.sort(preactivations, axis=0)
    # Degree B_aux has no (d+1)-th value. Give it one, as far below the last as the last is below
    # the one before; where that is not a distance at all (twins, or a single sample), take the
    # deviation that Soliton-Free assumes, given here as `spread`.
    gap = rising[1] - rising[0] if len(rising) > 1 else np.zeros_like(spread)
    beyond = rising[0] - np.where(gap > 0, gap, spread)
    rising = np.concatenate([beyond[np.newaxis], rising])
    place, neurons = len(preactivations) - degrees, np.arange(len(degrees))
    thresholds: NDArray[np.float64] = (rising[place, neurons] + rising[place + 1, neurons]) / 2
    return thresholds
