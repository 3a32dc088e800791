"""Tokens that an update names: rows of an embedding's gradient.

A row of an embedding's gradient is zero unless its token occurred in the batch. That needs no
decoding at all.

Example:
    >>> import gradpeel as gp
    >>> model = nn.Sequential(
    ...     nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 2)
    ... )
    >>> tokens = torch.tensor([[3, 14, 15], [9, 26, 3]])
    >>> leaked_tokens(model, gp.local_update(model, tokens, torch.tensor([0, 1])))
    {'0': tensor([ 3,  9, 14, 15, 26])}
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradpeel.checks import check_module
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["leaked_tokens"]


def leaked_tokens(model: nn.Module, update: Update) -> dict[str, Tensor]:
    """The tokens that occurred in the batch behind an update, by embedding layer.

    A token whose gradient happens to be zero, such as that of padding, is not among them. A table
    without any zero row is left out: every token occurred, or something was added to every row, as
    noise, weight decay or a second use of the table does.

    Args:
        model: the network the update was computed on.
        update: what the client sent.

    Returns:
        The indices of the rows that are not zero, in order, by name of the layer.

    Raises:
        InputError: `model` is not a module, `update` not an update, or a gradient has another shape
            than its table.
    """
    check_module(model)
    if not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    found = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
            continue
        gradient = update.gradients.get(f"{name}.weight" if name else "weight")
        if gradient is None:
            continue
        if gradient.shape != module.weight.shape:
            raise InputError(
                f"update: {name}.weight of shape {tuple(gradient.shape)}: "
                f"expected {tuple(module.weight.shape)}, as the model has"
            )
        occurs = (gradient != 0).any(1)
        if not bool(occurs.all()):
            found[name] = torch.nonzero(occurs).flatten().cpu()
    return found
