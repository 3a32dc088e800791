"""One honest training round: what a client computes and sends in FedSGD (paper, "Threat Model").

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

from gradpeel.checks import as_batch, as_tensor, check_module
from gradpeel.errors import InputError
from gradpeel.losses import CrossEntropy, Loss, check_loss
from gradpeel.update import DTYPES, Reduction, Update

__all__ = ["check_dtype", "check_seed", "gradients", "local_update"]


def local_update(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    dtype: torch.dtype | None = None,
    reduction: Reduction = "mean",
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
    seed: int = 0,
) -> Update:
    """Compute the gradient of the loss on one batch, as an honest client does.

    The model runs in the mode it is in: in training mode, dropout is active and batch norm uses the
    statistics of the batch.

    Args:
        model: the network the server sent; it is not changed.
        x: the batch, (batch, *sample_shape).
        y: class labels, (batch,) integers, for the cross-entropy; targets, (batch, outputs), for
            the other losses.
        dtype: the dtype in which the client computes; by default the model's own.
        reduction: whether the batch loss is the mean or the sum of the samples' losses.
        loss: the loss that the client minimises.
        seed: seed of anything random in the model, such as dropout; the caller's own random
            numbers are not affected.

    Raises:
        InputError: an empty batch, targets that do not fit it or the network, or a setting that
            breaks its rule.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
        >>> x, y = torch.rand(5, 4), torch.rand(5, 2)
        >>> from gradpeel.losses import MeanSquaredError
        >>> local_update(model, x, y, loss=MeanSquaredError())
        Update(4 tensors, 58 numbers, float32, batch_size=5, reduction='mean')
    """
    check_module(model)
    check_loss(loss)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("model: no parameter requires a gradient: there is nothing to send")
    dtype = next(model.parameters()).dtype if dtype is None else dtype
    check_dtype(dtype)
    check_seed(seed)
    x, y = as_batch(x, dtype), as_tensor("y", y)
    worker = copy.deepcopy(model).to(dtype)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        total = _total_loss(worker, x.to(dtype), y, loss)
    share = 1.0 / loss.denominator(y) if reduction == "mean" else 1.0
    return Update(_differentiate(worker, total, share), len(x), reduction)


def gradients(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    share: float,
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
) -> dict[str, Tensor]:
    """Gradients by parameter name of `share` times the summed loss of the batch.

    With share = 1/B, the whole batch and the cross-entropy this is the client's update; with a part
    of the batch and the same share it is that part's contribution to it.

    Whatever the model draws at random comes from PyTorch's own generator.
    """
    return _differentiate(model, _total_loss(model, x, y, loss), share)


def _total_loss(model: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    with torch.enable_grad():
        outputs = _run(model, x)
        loss.check(outputs, y)
        return loss.total(outputs, y)


def _differentiate(model: nn.Module, total: Tensor, share: float) -> dict[str, Tensor]:
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        scaled = total * share
    found = torch.autograd.grad(scaled, list(named.values()), materialize_grads=True)
    return dict(zip(named, (gradient.detach() for gradient in found), strict=True))


def _run(model: nn.Module, x: Tensor) -> Tensor:
    try:
        outputs: Tensor = model(x)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"x of shape {tuple(x.shape)}: the model does not take it ({reason})"
        ) from error
    if outputs.shape[:1] != x.shape[:1]:
        raise InputError(
            f"model: output shape {tuple(outputs.shape)}: expected one row for each of "
            f"{len(x)} samples"
        )
    return outputs


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that no client computes in."""
    if dtype not in DTYPES:
        raise InputError(f"dtype={dtype}: expected float64, float32, bfloat16 or float16")


def check_seed(seed: int) -> None:
    """Refuse a seed that PyTorch's generators do not take."""
    value: object = seed
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InputError(f"seed={value!r}: expected an integer of at least 0")
