"""Mixtures of unknown samples: rough ideas of where one of them fires.

Any combination w of neurons gives a mixture G^T w / (h . w) of the samples, each with the weight
c_i . w. Taken orthogonal to rows that are known, it holds nothing of their samples any more, and
not one of these had to be known for that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.linalg import gaussian, generator
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["Seeds"]

_MOST_PARTS = 3
"""Neurons that are combined at most, once each has been tried by itself."""


_STRETCH = (1.0, 1.0, 2.0, 4.0, 8.0)
"""Mixtures are drawn away from what is common to all of them by some of these factors."""


class Seeds:
    """A stream of mixtures, the same every time.

    Attributes:
        source: of random numbers.
    """

    def __init__(self, residual: Residual, space: RowSpace) -> None:
        self._residual = residual
        self._space = space
        self._rows = residual.rows[space.live] / space.unit[:, None]
        self._bias = residual.bias[space.live] / space.unit
        self.source = generator()
        # Neurons with a small gradient are those that few samples fire: the purest mixtures.
        self._order = space.unit.argsort()
        self._parts = 1

    def draw(self, count: int, known: Tensor) -> Tensor:
        """(count, neurons) pre-activations of mixtures without the samples of known rows.

        Args:
            count: number of mixtures.
            known: (n, live) rows that are known, in the units of the search.
        """
        mix = self._rows.new_zeros(count, len(self._bias))
        for part in range(self._parts):
            neurons = self.next_neurons(count)
            share = gaussian(count, like=mix, source=self.source) if part else mix.new_ones(count)
            mix[torch.arange(count, device=mix.device), neurons] += share
        if len(known):
            basis = torch.linalg.qr(known.T).Q
            mix = mix - (mix @ basis) @ basis.T
        z = self.mixed(mix)
        # What mixtures have in common all samples have; by what they differ, samples differ more.
        usual = z.median(0).values
        drawn = torch.randint(len(_STRETCH), (count, 1), generator=self.source, device="cpu")
        return usual + z.new_tensor(_STRETCH)[drawn.to(z.device)] * (z - usual)

    def mixed(self, mix: Tensor) -> Tensor:
        """(n, neurons) pre-activations of mixtures.

        Args:
            mix: (n, live) how much of each neuron, in the units of the search.
        """
        weight = (mix @ self._bias)[:, None]
        tiny = torch.finfo(weight.dtype).tiny
        weight = torch.where(weight.abs() > tiny, weight, tiny)
        return self._residual.pre_activations((mix @ self._rows) / weight)

    def next_neurons(self, count: int) -> Tensor:
        """So many neurons; each once before any comes again."""
        while len(self._order) < count:
            self._order = torch.cat([self._order, self._shuffled()])
            self._parts = self._parts % _MOST_PARTS + 1
        some, self._order = self._order[:count], self._order[count:]
        return some

    def _shuffled(self) -> Tensor:
        order = torch.randperm(len(self._bias), generator=self.source, device="cpu")
        return order.to(self._bias.device)
