"""Gradients from what people have: weights before and after, as models, state dicts or arrays.

A client of FedAvg returns weights. Their difference is what it learned; what of it is not gradient,
the pull of weight decay, is taken out. Where weight decay is not declared it can be found: the
gradient of a softmax sums to zero over the classes, so the sums of the last layer's weights over
the classes change by weight decay alone.

Example:
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> before = {name: value.clone() for name, value in model.state_dict().items()}
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    >>> nn.functional.cross_entropy(model(torch.rand(5, 4)), torch.arange(5) % 3).backward()
    >>> optimiser.step()
    >>> stated = LocalTraining(lr=0.1, steps=1)
    >>> gradients, training = gradients_between(before, model, stated, finds_decay=True)
    >>> f"{training.weight_decay:.4f}"
    '0.0100'
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gradpeel.checks import check_dense, check_dtype, check_module, from_array
from gradpeel.errors import InputError
from gradpeel.rounding import ulps
from gradpeel.training import LocalTraining, summed_gradients

__all__ = ["Weights", "find_kept", "gradients_between", "gradients_of"]

Weights: TypeAlias = nn.Module | Mapping[str, Any] | Sequence[Any]
"""A model, tensors or arrays by parameter name, Flower's ArrayRecord, or a list of arrays."""

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_SIGNS = 1.05
"""The changes of one step of Adam are all of one size, up to this ratio."""

_MOST = 0.4
"""So many changes of one size are no gradient's."""

_SIGNIFICANT = 8.0
"""Weight decay that stands so many times its error above zero is there."""

_EXPLAINED = 1e-3
"""What weight decay leaves of the sums over classes, beside roundings, if it is weight decay."""


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """The gradients of a model after `backward()`, copied, by parameter name.

    Raises:
        InputError: no parameter has a gradient.
    """
    check_module(model)
    found = {
        name: parameter.grad.detach().clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    if not found:
        raise InputError("model: no parameter has a gradient: expected one after backward()")
    return found


def gradients_between(
    before: Weights, after: Weights, training: LocalTraining, *, finds_decay: bool = False
) -> tuple[dict[str, Tensor], LocalTraining]:
    """The summed gradients of a local training, from the weights at both of its ends.

    Args:
        before: the weights that the client received, see `gradpeel.Update.from_weights`.
        after: the weights that it returned.
        training: how it trained, as far as it is stated.
        finds_decay: whether weight decay is unknown and has to be found in the last layer.

    Returns:
        The gradients by parameter name, and the training with the weight decay that was found.

    Raises:
        InputError: the two do not fit each other, nothing changed, or the change is that of Adam.
    """
    names = _names(before) or _names(after)
    old, new = _named("before", before, names), _named("after", after, names)
    old, new = _pair_up(old, new)
    _refuse_signs(old, new)
    if not finds_decay:
        return summed_gradients(old, new, training), training
    kept = find_kept(old, new)
    if training.lr is not None and training.is_one_step:
        training = replace(training, weight_decay=max(0.0, (1 - kept) / training.lr))
        return summed_gradients(old, new, training), training
    # The pull of weight decay is known, but not the setting behind it.
    return summed_gradients(old, new, training, kept=kept), training


def find_kept(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """What share of the first weights is left in the last ones; 1 without weight decay.

    The gradient of a softmax sums to zero over the classes, at the last layer's bias and for each
    of its inputs. Over the classes its weights sum to what weight decay made of them.

    Args:
        before: weights by parameter name, in the order of the layers.
        after: the same, after training.

    Raises:
        InputError: the sums changed in another way, so that the loss was no cross-entropy of a
            softmax, or the last layer is not among the weights.
    """
    name = next((name for name in reversed(list(before)) if before[name].ndim == 2), None)
    if name is None or len(before[name]) < 2:
        raise InputError("weight_decay=None: no last layer of two classes or more to find it in")
    old, new = before[name].double(), after[name].double()
    first, last = old.sum(0), new.sum(0)
    size = float(first.square().sum())
    if not size:
        return 1.0
    shrunk = float((first - last) @ first) / size
    rounding = math.sqrt(float(ulps(old, before[name].dtype).square().sum()) / 12)
    left = float((first - last - shrunk * first).norm())
    change = float((old - new).norm())
    if left > _SIGNIFICANT * rounding + _EXPLAINED * change:
        raise InputError(
            f"weight_decay=None: {name!r} does not change as the layer before a softmax does, so "
            "that weight decay cannot be found: state it"
        )
    error = max(rounding, left) / math.sqrt(size)
    return 1.0 - shrunk if shrunk > _SIGNIFICANT * error / math.sqrt(len(first)) else 1.0


def _names(weights: Weights) -> tuple[list[str], list[str]] | None:
    """Names in the order of a state dict, and of the parameters alone; None for a list."""
    if isinstance(weights, nn.Module):
        return list(weights.state_dict()), [name for name, _ in weights.named_parameters()]
    mapping = _mapping(weights)
    if mapping is None:
        return None
    return list(mapping), [name for name in mapping if not name.endswith(_BUFFERS)]


def _mapping(weights: Weights) -> Mapping[str, Any] | None:
    """Arrays by name; None for a list."""
    # Flower's ArrayRecord, without importing Flower. Arrays only: nothing is unpickled.
    convert = getattr(weights, "to_torch_state_dict", None)
    if callable(convert):
        converted: Mapping[str, Any] = convert()
        return converted
    return weights if isinstance(weights, Mapping) else None


def _named(
    which: str, weights: Weights, names: tuple[list[str], list[str]] | None
) -> dict[str, Tensor]:
    """Parameters by name, detached, on the CPU; buffers left out."""
    if isinstance(weights, nn.Module):
        return {name: p.detach().cpu() for name, p in weights.named_parameters()}
    mapping = _mapping(weights)
    if mapping is None:
        if isinstance(weights, str | bytes) or not isinstance(weights, Sequence):
            kind = type(weights).__name__
            raise InputError(f"{which} of type {kind}: expected a model, a state dict or arrays")
        if names is None:
            raise InputError("before, after: two lists without names: give one as a model")
        every = next((some for some in names if len(some) == len(weights)), None)
        if every is None:
            counts = " or ".join(str(len(some)) for some in names)
            raise InputError(f"{which}: {len(weights)} arrays: expected {counts}, as the model has")
        mapping = dict(zip(every, weights, strict=True))
    # What a model does not call a parameter is a buffer; a state dict says no more than its names.
    buffers = set(names[0]) - set(names[1]) if names is not None else set()
    return {
        name: _tensor(f"{which}: {name}", value)
        for name, value in mapping.items()
        if name not in buffers and not name.endswith(_BUFFERS)
    }


def _tensor(where: str, value: object) -> Tensor:
    if isinstance(value, np.ndarray):
        value = from_array(where, value)
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise InputError(f"{where} of type {kind}: expected a tensor or a NumPy array")
    check_dense(where, value)
    check_dtype(where, value.dtype)
    return value.detach().cpu()


def _pair_up(
    before: dict[str, Tensor], after: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters that both have, in the order of the first."""
    for which, ours, theirs in (("after", before, after), ("before", after, before)):
        missing = [name for name in ours if name not in theirs]
        if missing:
            raise InputError(f"{which}: {missing[0]!r} missing, which the other one has")
    for name, old in before.items():
        new = after[name]
        if old.shape != new.shape:
            shapes = f"{tuple(old.shape)} before, {tuple(new.shape)} after"
            raise InputError(f"{name}: {shapes}: expected the same shape")
        if old.dtype != new.dtype:
            kinds = f"{old.dtype} before, {new.dtype} after"
            raise InputError(f"{name}: {kinds}: expected the same dtype, as it was trained in")
    if not any(bool((before[name] != after[name]).any()) for name in before):
        raise InputError("before, after: no weight has changed: there is nothing to decode")
    return before, after


def _refuse_signs(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Refuse the first step of Adam, which moves every weight by the learning rate.

    Weight decay of AdamW changes that by as little as it changes the weights.
    """
    changes = torch.cat(
        [(after[name].double() - old.double()).flatten() for name, old in before.items()]
    ).abs()
    changes = changes[changes > 0]
    some = changes[:: max(1, len(changes) // 100_000)]
    if len(some) < 100:
        return
    high = float(torch.quantile(some, 0.9))
    alike = (some <= _SIGNS * high) & (some >= high / _SIGNS)
    # AdamW also shrinks weights that have no gradient.
    if float(alike.double().mean()) >= _MOST:
        raise InputError(
            f"before, after: most weights moved by {high:.1e}, as in a step of Adam, which "
            "leaves only the signs of a gradient: expected SGD"
        )
