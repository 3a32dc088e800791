"""From what people have at hand as a loss to a `gradpeel.Loss`: PyTorch's own modules included.

Example:
    >>> as_loss(nn.CrossEntropyLoss(label_smoothing=0.1))
    CrossEntropy(label_smoothing=0.1, class_weights=None)
    >>> as_loss(nn.MSELoss(reduction="sum"), reduction="mean")
    Traceback (most recent call last):
    gradpeel.errors.InputError: loss=nn.MSELoss(reduction='sum'): expected reduction='mean', which
    the rest of the round has
"""

from __future__ import annotations

from torch import nn

from gradpeel.errors import InputError
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
from gradpeel.update import Reduction

__all__ = ["GivenLoss", "as_loss"]

GivenLoss = Loss | nn.CrossEntropyLoss | nn.MSELoss | nn.BCEWithLogitsLoss
"""What is accepted wherever a loss is."""

_IGNORES_NOTHING = -100
_RULE = "expected a loss such as gradpeel.CrossEntropy() or torch.nn.CrossEntropyLoss()"


def as_loss(loss: GivenLoss, *, reduction: Reduction | None = None) -> Loss:
    """The loss that was given; a module of PyTorch becomes one that computes the same.

    Args:
        loss: a `gradpeel.Loss`, or an `nn.CrossEntropyLoss`, `nn.MSELoss` or
            `nn.BCEWithLogitsLoss`; class weights and label smoothing are kept.
        reduction: the reduction of the round, with which a module's own must agree.

    Raises:
        InputError: not a loss, such as a class instead of an instance; or a module with a setting
            that is not supported, which the message names.
    """
    match loss:
        case nn.CrossEntropyLoss() | nn.MSELoss() | nn.BCEWithLogitsLoss():
            return _from_module(loss, reduction)
    methods = (getattr(loss, name, None) for name in ("check", "total", "denominator"))
    if isinstance(loss, type) or not all(map(callable, methods)):
        raise InputError(f"loss={loss!r}: {_RULE}")
    return loss


def _from_module(
    module: nn.CrossEntropyLoss | nn.MSELoss | nn.BCEWithLogitsLoss, reduction: Reduction | None
) -> Loss:
    kind = type(module)
    if kind not in {nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss}:
        raise InputError(f"loss of type {kind.__name__}, a class of its own: {_RULE}")
    name, own = f"loss=nn.{kind.__name__}", module.reduction
    if own not in {"mean", "sum"}:
        raise InputError(f"{name}(reduction={own!r}): expected the reduction 'mean' or 'sum'")
    if reduction is not None and own != reduction:
        rule = f"expected reduction={reduction!r}, which the rest of the round has"
        raise InputError(f"{name}(reduction={own!r}): {rule}")
    if isinstance(module, nn.MSELoss):
        return MeanSquaredError()
    if isinstance(module, nn.BCEWithLogitsLoss):
        for setting in ("weight", "pos_weight"):
            if getattr(module, setting) is not None:
                raise InputError(f"{name}({setting}=...): not supported yet: expected no {setting}")
        return BinaryCrossEntropy()
    # Labels are never negative, so PyTorch's default leaves none out.
    if module.ignore_index != _IGNORES_NOTHING:
        rule = "not supported yet: expected that no label is ignored"
        raise InputError(f"{name}(ignore_index={module.ignore_index}): {rule}")
    weights = None if module.weight is None else tuple(module.weight.double().tolist())
    return CrossEntropy(module.label_smoothing, weights)
