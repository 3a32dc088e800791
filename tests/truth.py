"""What a decoder would hold in its hands if it knew the batch: for tests of the decoder's parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.residual import Residual
from gradpeel.target import Target, split
from support import SmallRound


@dataclass(frozen=True)
class Truth:
    """A round's samples behind the target, by autograd, weighted as in the batch loss.

    Attributes:
        target: the target, in float64.
        rows: (batch, features) the samples as the target sees them.
        z: (batch, neurons) pre-activations.
        c: (batch, neurons) sensitivities.
        v: (batch, next width) loss gradient at the next layer's output; no columns without one.
    """

    target: Target
    rows: Tensor
    z: Tensor
    c: Tensor
    v: Tensor

    @classmethod
    def of(cls, round_: SmallRound) -> Truth:
        """Compute it, in float64 at the round's own weights."""
        target = split(round_.model).to(torch.float64)
        rows = target.front(round_.x.double())
        z = target.pre_activations(rows).requires_grad_()
        entered = z.relu()
        layer = target.tail.next_layer
        if layer is not None:
            entered = layer(entered)
        loss = functional.cross_entropy(target.tail.rest(entered), round_.y, reduction="sum")
        c, v = torch.autograd.grad(loss * round_.update.share, [z, entered])
        return cls(target, rows, z.detach(), c, v if layer is not None else v[:, :0])

    def peeled(self, residual: Residual, *, error: float = 0.0) -> Peeled:
        """The samples as the residual needs them, exact, but said to be known up to `error`."""
        space = self.rows @ self.target.weight.T if residual.in_neuron_space else self.rows
        known = torch.full((len(self.rows),), error, dtype=torch.float64)
        return Peeled(
            coordinates=space,
            activations=self.z.relu(),
            sensitivities=self.c,
            next_sensitivities=self.v,
            sample_error=known,
            sensitivity_error=known,
            kink=torch.zeros_like(self.z),
        )

    def blurred(self, residual: Residual, error: float, *, seed: int = 0) -> Peeled:
        """The samples as a decoder that is off by `error` would know them."""
        generator = torch.Generator().manual_seed(seed)

        def noise(like: Tensor) -> Tensor:
            return error * torch.randn(like.shape, generator=generator, dtype=torch.float64)

        exact = self.peeled(residual, error=error)
        fires = self.z > 0
        coordinates = exact.coordinates + residual.scale * noise(exact.coordinates)
        z = residual.pre_activations(coordinates)
        return Peeled(
            coordinates=coordinates,
            activations=(z * fires).clamp(min=0.0),
            sensitivities=self.c + fires * typical(self.c)[:, None] * noise(self.c),
            next_sensitivities=self.v + self.v.abs().amax(1, keepdim=True) * noise(self.v)
            if self.v.shape[1]
            else self.v,
            sample_error=exact.sample_error,
            sensitivity_error=exact.sensitivity_error,
            kink=exact.kink,
        )
