"""One honest local round: what a client computes and sends in FedSGD (paper, "Threat Model").

Example:
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> update = local_update(model, torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    >>> sorted(update.gradients)
    ['0.bias', '0.weight', '2.bias', '2.weight']
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from gradpeel.errors import InputError
from gradpeel.update import DTYPES, Reduction, Update

__all__ = ["check_dtype", "gradients", "local_update"]


def local_update(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    dtype: torch.dtype | None = None,
    reduction: Reduction = "mean",
) -> Update:
    """Compute the gradient of the cross-entropy on one batch, as an honest client does.

    Args:
        model: the network the server sent; it is not changed.
        x: the batch, (batch, *sample_shape).
        y: class labels, (batch,) integers.
        dtype: the dtype the client computes in; the model's own where not given.
        reduction: whether the batch loss is the mean or the sum of the samples' losses.

    Raises:
        InputError: an empty batch, labels that do not fit it or the network, or a wrong dtype.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("model: no parameter requires a gradient: there is nothing to send")
    dtype = dtype or next(model.parameters()).dtype
    check_dtype(dtype)
    _check_batch(x, y)
    worker = copy.deepcopy(model).to(dtype)
    share = 1.0 / len(x) if reduction == "mean" else 1.0
    return Update(gradients(worker, x.to(dtype), y, share=share), len(x), reduction)


def gradients(model: nn.Module, x: Tensor, y: Tensor, *, share: float) -> dict[str, Tensor]:
    """Gradients by parameter name of `share` times the summed cross-entropy of the batch.

    With share = 1/B and the whole batch this is the client's update; with a part of the batch and
    the same share it is that part's contribution to it.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        logits = _run(model, x)
        _check_labels(y, logits)
        loss = functional.cross_entropy(logits, y.long(), reduction="sum") * share
    found = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    return dict(zip(named, (gradient.detach() for gradient in found), strict=True))


def _run(model: nn.Module, x: Tensor) -> Tensor:
    try:
        logits: Tensor = model(x)
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"x of shape {tuple(x.shape)}: the model does not take it ({reason})"
        ) from error
    return logits


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that no client computes in."""
    if dtype not in DTYPES:
        raise InputError(f"dtype={dtype}: expected float64, float32, bfloat16 or float16")


def _check_batch(x: Tensor, y: Tensor) -> None:
    if x.ndim < 2:
        raise InputError(f"x of shape {tuple(x.shape)}: expected (batch, *sample_shape)")
    if len(x) == 0:
        raise InputError("x: an empty batch: expected at least one sample")
    if y.ndim != 1 or len(y) != len(x):
        raise InputError(
            f"y: shape {tuple(y.shape)}: expected one label for each of {len(x)} samples"
        )
    if y.dtype not in (torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8):
        raise InputError(f"y: dtype {y.dtype}: expected integer class labels")
    if not torch.isfinite(x).all():
        raise InputError("x: holds values that are not finite")


def _check_labels(y: Tensor, logits: Tensor) -> None:
    if logits.ndim != 2:
        raise InputError(f"model: output shape {tuple(logits.shape)}: expected (batch, classes)")
    classes = logits.shape[1]
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise InputError(f"y: labels {low}..{high}: the model has classes 0..{classes - 1}")
