"""The way from inputs to features as a function that can be differentiated.

`gradpeel.target.FeatureFront` runs a network to see what enters the target. Here the same run stops
at the target, keeps the graph of its operations, and can be linearised.

Example:
    >>> from gradpeel.target import split
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 5), nn.ReLU())
    >>> front = FrontMap(split(model).front, torch.float64)
    >>> slope = Linearised(front, torch.rand(3, 1, 4, 4).double())
    >>> slope.push(torch.rand(3, 1, 4, 4).double()).shape, slope.pull(slope.features).shape
    (torch.Size([3, 8]), torch.Size([3, 1, 4, 4]))
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from gradpeel.errors import InputError, ModelRefusedError, ModelSettingError
from gradpeel.target import FeatureFront, Front

__all__ = ["TINY", "FrontMap", "Linearised", "check_can_be_inverted", "has_slope", "norms"]

TINY = torch.finfo(torch.float32).tiny
"""Keeps features that are all zero from being divided by."""


def check_can_be_inverted(front: Front | FeatureFront) -> FeatureFront:
    """Make sure that a front gives the same input the same features each time.

    Raises:
        InputError: recovered samples are inputs already.
        ModelRefusedError: the features of a sample change from batch to batch.
    """
    if isinstance(front, Front):
        raise InputError("model: recovered samples are inputs already: there is nothing to invert")
    if front.unsteady is not None:
        raise ModelRefusedError(
            [
                ModelSettingError(
                    f"{front.unsteady}: an input has other features in every batch: expected a "
                    "network without that in front of the layer, as after model.eval()"
                )
            ],
            "inputs cannot be reconstructed",
        )
    return front


class _ReachedError(Exception):
    """The target was reached: the rest of the network need not run."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows


class FrontMap:
    """Features of inputs, (n, *sample_shape) to (n, features), with the graph that leads to them.

    Args:
        front: the front of a target; it is copied.
        dtype: what to compute in.
    """

    def __init__(self, front: Front | FeatureFront, dtype: torch.dtype) -> None:
        front = check_can_be_inverted(front)
        self.dtype, self._width = dtype, front.features
        self._model = copy.deepcopy(front.model).to(dtype).requires_grad_(requires_grad=False)
        self._model.get_submodule(front.layer).register_forward_pre_hook(_stop)

    def __call__(self, x: Tensor) -> Tensor:
        """The features of inputs that the network takes.

        Raises:
            InputError: they do not enter the target as one row per input.
        """
        try:
            # A copy: the network may change what it is given in place.
            self._model(x.clone())
        except _ReachedError as reached:
            rows = reached.rows
            if rows.shape == (len(x), self._width):
                return rows
            raise InputError(
                f"inputs of shape {tuple(x.shape)} enter the target as {tuple(rows.shape)}: "
                f"expected ({len(x)}, {self._width})"
            ) from None
        raise InputError("model: the target is not reached: expected it to be called once")

    def distances(self, x: Tensor, features: Tensor) -> Tensor:
        """(n,) distance of the features of inputs from given ones, relative to their norm."""
        with torch.no_grad():
            return norms(self(x) - features) / norms(features).clamp(min=TINY)


def has_slope(front: FeatureFront, shape: tuple[int, ...]) -> bool:
    """Whether a derivative leads from features back to inputs of a shape.

    Rounding has none, and what a network detaches or computes elsewhere has none either.
    """
    features_of = FrontMap(front, torch.float32)
    with torch.enable_grad():
        x = torch.zeros((2, *shape)).requires_grad_()
        features = features_of(x)
        if not features.requires_grad:
            return False
        weights = torch.zeros_like(features, requires_grad=True)
        (pulled,) = torch.autograd.grad(
            features, x, weights, create_graph=True, materialize_grads=True
        )
    return pulled.requires_grad


def _stop(_: nn.Module, inputs: tuple[Any, ...]) -> None:
    raise _ReachedError(inputs[0])


class Linearised:
    """The derivative of a front at some inputs, each sample on its own.

    Attributes:
        features: (n, features) the features of these inputs.
    """

    def __init__(self, front: FrontMap, x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._features = front(self._x)
            # What is pulled back is linear in its weights, so its own derivative pushes forward:
            # no second pass through the network's non-linear steps is needed.
            self._weights = torch.zeros_like(self._features, requires_grad=True)
            (self._pulled,) = torch.autograd.grad(
                self._features, self._x, self._weights, create_graph=True, materialize_grads=True
            )
        self.features = self._features.detach()

    def push(self, direction: Tensor) -> Tensor:
        """How features change along a direction of the inputs, (n, *sample_shape)."""
        (found,) = torch.autograd.grad(
            self._pulled, self._weights, direction, retain_graph=True, materialize_grads=True
        )
        return found

    def pull(self, weights: Tensor) -> Tensor:
        """The direction of inputs that features with these weights, (n, features), point at."""
        (found,) = torch.autograd.grad(
            self._features, self._x, weights, retain_graph=True, materialize_grads=True
        )
        return found


def norms(x: Tensor) -> Tensor:
    """(n,) norm of each sample of x, (n, ...)."""
    lengths: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return lengths
