"""The model and the update given to a decoder: checked, and moved to where it works."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from gradpeel.device import choose, with_float64
from gradpeel.errors import InputError, ModelRefusedError, UnsupportedModelError
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import Target
from gradpeel.update import Update

__all__ = ["check_belongs", "check_rows_last", "move", "samples_weigh_alike", "stated_share"]


def move(
    model: nn.Module, update: Update, device: str | torch.device
) -> tuple[nn.Module, Update, torch.device]:
    """The model and the update on the device that decodes them, and that device."""
    # An empty tensor knows which of several devices of one kind it is on.
    where = torch.empty(0, device=with_float64(choose(device))).device
    home = next((parameter.device for parameter in model.parameters()), where)
    if with_float64(home) != home:
        model = copy.deepcopy(model).to(where)
    if any(g.device != where for g in update.gradients.values()):
        moved = {name: g.to(where) for name, g in update.gradients.items()}
        update = replace(update, gradients=moved)
    return model, update, where


def stated_share(update: Update) -> float | None:
    """The weight of one sample according to the update's own statements."""
    if update.reduction == "sum":
        return 1.0
    return 1.0 / update.batch_size if update.batch_size else None


def samples_weigh_alike(update: Update, loss: Loss) -> bool:
    """Whether every sample's loss has the same weight in the update, but for its label's.

    With class weights a mean divides by the sum of the labels' weights, which no two of several
    clients need have in common.
    """
    is_mean = update.reduction == "mean"
    has_own = isinstance(loss, CrossEntropy) and loss.class_weights is not None and is_mean
    return update.equal_weights and not (update.clients > 1 and has_own)


def check_belongs(model: nn.Module, target: Target, update: Update, *, whole: bool) -> None:
    """Every gradient must have a parameter of the same name and shape, the target's among them.

    Where the tail is not available (not `whole`), gradients of layers behind it are ignored.

    Raises:
        InputError: names the gradient that does not fit.
        ModelRefusedError: the update is that of several steps, and the rows of a sample changed
            from step to step.
    """
    training = update.training
    if training is not None and not training.is_one_step:
        check_rows_last(target, update)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    for name in (target.weight_name, target.bias_name):
        if name not in update.gradients:
            raise InputError(f"update: no gradient {name!r}, the target's; it has {_list(update)}")
    for name, gradient in update.gradients.items():
        if name not in shapes:
            if not whole:
                continue
            raise InputError(
                f"update: {name!r}: the model has no such parameter "
                "(where the tail is unknown, say so: knows_tail=False)"
            )
        if tuple(gradient.shape) != shapes[name]:
            raise InputError(
                f"update: {name!r} has shape {tuple(gradient.shape)}: the model's is {shapes[name]}"
            )


def check_rows_last(target: Target, update: Update | None = None) -> None:
    """Refuse a target whose rows of a sample, or whose scale, change from step to step.

    Args:
        target: the target.
        update: what the client sent, where that is known: a parameter that did not change was not
            trained.

    Raises:
        ModelRefusedError: says what changes.
    """
    front, layer = target.front, target.layer
    if target.fold is not None:
        raise ModelRefusedError(
            [
                UnsupportedModelError(
                    f"several local steps: {target.fold.by} scales what Linear '{layer}' puts out, "
                    "and may change from step to step; a client that takes one step can be audited"
                )
            ]
        )
    sent = {} if update is None else update.gradients
    trained = [name for name in front.trained if name not in sent or bool(sent[name].any())]
    why = front.unsteady
    if trained:
        more = f" and {len(trained) - 1} more" if len(trained) > 1 else ""
        why = f"the front is trained too ('{trained[0]}'{more})"
    if why is None:
        return
    raise ModelRefusedError(
        [
            UnsupportedModelError(
                f"several local steps: {why}, so that features that enter Linear '{layer}' change "
                "from step to step; a front with requires_grad=False in evaluation mode, or a "
                "client that takes one step, can be audited"
            )
        ]
    )


def _list(update: Update) -> str:
    return ", ".join(repr(name) for name in list(update.gradients)[:8])
