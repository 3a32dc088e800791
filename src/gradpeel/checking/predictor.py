"""A prediction for every step of a training, at less than the cost of the step.

Example:
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 2))
    >>> predict = Predictor(model)
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for x, y in [(torch.randn(5, 8), torch.tensor([0, 1, 1, 0, 1]))] * 2:
    ...     if predict(x).readable:
    ...         print("leave this batch out")
    ...     else:
    ...         nn.functional.cross_entropy(model(x), y).backward()
    ...         optimiser.step()
    leave this batch out
    leave this batch out
"""

from __future__ import annotations

import time

import torch
from torch import nn

from gradpeel.checking.check import Check, predicted_at
from gradpeel.coercion import Samples, as_samples
from gradpeel.target import Target, split

__all__ = ["Predictor"]


class Predictor:
    """Predicts what peeling reads of the gradient of a batch, for a network that is being trained.

    The same as `gradpeel.check(model, x, decode=False)`, except that it finds the layer once and
    not for every batch, which takes longer than everything else. It sees every change of the
    weights, but not of the network's structure or mode: make a new one then.

    Args:
        model: the network, in the mode in which it is trained.
        layer: name of the layer to look at; by default the first one that can be read.

    Raises:
        ModelRefusedError: the network cannot be checked, which does not mean that it is safe.
    """

    def __init__(self, model: nn.Module, *, layer: str | None = None) -> None:
        self._model, self._layer = model, layer
        self._target: Target | None = split(model, layer=layer, share=True)
        named = dict(model.named_parameters())
        pairs = (
            (self._target.weight, named[self._target.weight_name]),
            (self._target.bias, named[self._target.bias_name]),
        )
        # What was computed from the weights, such as a layer with its batch norm, is old after a
        # step.
        is_shared = all(mine.data_ptr() == theirs.data_ptr() for mine, theirs in pairs)
        if not is_shared or self._target.front.trained:
            self._target = None

    @torch.no_grad()
    def __call__(self, x: Samples) -> Check:
        """Predict.

        Args:
            x: the batch, in any form that `gradpeel.exposure` takes.

        Raises:
            InputError: the batch does not fit the network, or holds NaN or infinite values.
        """
        started = time.perf_counter()
        target = self._target or split(self._model, layer=self._layer, share=True)
        taken = as_samples(self._model, x, None, target.weight.dtype).x
        return predicted_at(target, taken, started)
