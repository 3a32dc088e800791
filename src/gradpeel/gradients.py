"""The gradient of a batch by parameter name, as PyTorch computes it.

Example:
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> {name: tuple(found.shape) for name, found in batch_gradients(model, x, y).items()}
    {'0.weight': (8, 4), '0.bias': (8,), '2.weight': (3, 8), '2.bias': (3,)}
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.inputs import NetworkInput, describe, run_model
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.update import Reduction

__all__ = ["batch_gradients", "gradients"]


def batch_gradients(
    model: nn.Module,
    x: NetworkInput,
    y: Tensor,
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
    reduction: Reduction = "mean",
) -> dict[str, Tensor]:
    """Gradients of the loss of a batch, summed or averaged over it as PyTorch does.

    Raises:
        InputError: the model does not take the batch, or the targets do not fit.
    """
    total = _total_loss(model, x, y, loss)
    share = 1.0 / loss.denominator(y) if reduction == "mean" else 1.0
    return _differentiate(model, total, share)


def gradients(
    model: nn.Module,
    x: NetworkInput,
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


def _total_loss(model: nn.Module, x: NetworkInput, y: Tensor, loss: Loss) -> Tensor:
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


def _run(model: nn.Module, x: NetworkInput) -> Tensor:
    try:
        outputs: Tensor = run_model(model, x)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{describe(x)}: the model does not take it ({reason})") from error
    if outputs.shape[:1] != (len(x),):
        raise InputError(
            f"model: output shape {tuple(outputs.shape)}: expected one row for each of "
            f"{len(x)} samples"
        )
    return outputs
