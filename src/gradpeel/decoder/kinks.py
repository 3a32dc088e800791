"""Neurons at which a known sample lies at the ReLU's kink: does it fire there?

Its pre-activation is zero within its error, so simulating it cannot decide. But whether it fires
changes the neuron's residual by the sample's whole contribution. If one of the two alternatives
leaves nothing, or something that is certified, and the other does not, that one is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sample_block import SampleBlock

__all__ = ["tell_kinks"]

Isolates = Callable[[Residual, Tensor], Tensor]
"""Which neurons (of a mask) yield a new sample that is certified in a residual: (neurons,)."""


@dataclass(frozen=True, eq=False)
class _Kinks:
    """Uncertain samples, at one neuron each.

    Attributes:
        samples: (m,) which sample.
        neurons: (m,) at which neuron; none occurs twice.
        parts: (m,) its sensitivity there, if it fires.
        doubt: (m,) the part of the neuron's error that is due to it.
        fires: (m,) whether it is assumed to fire.
    """

    samples: Tensor
    neurons: Tensor
    parts: Tensor
    doubt: Tensor
    fires: Tensor

    def pick(self, mask: Tensor) -> _Kinks:
        return _Kinks(*(getattr(self, field.name)[mask] for field in fields(self)))


def tell_kinks(peeled: SampleBlock, residual: Residual, isolates: Isolates) -> SampleBlock | None:
    """Determine where samples at a kink fire, and correct the residual there.

    Args:
        peeled: the certified samples.
        residual: the residual without them; changed where more is known now.
        isolates: determines which neurons yield a new sample.

    Returns:
        The samples with what was determined; None if that was nothing.
    """
    kinks = _alone(peeled)
    if not len(kinks.samples):
        return None
    among = torch.zeros_like(residual.quiet)
    among[kinks.neurons] = True
    holds = []
    for turned in (False, True):
        other = residual.clone()
        _suppose(other, kinks, peeled.coordinates, turned=kinks.fires.new_full((), turned))
        holds.append((other.quiet | isolates(other, among))[kinks.neurons])
    stays, turns = holds
    told = stays != turns
    if not bool(told.any()):
        return None
    kinks, turns = kinks.pick(told), turns[told]
    _suppose(residual, kinks, peeled.coordinates, turned=turns)
    fires = kinks.fires != turns
    at = (kinks.samples, kinks.neurons)
    return replace(
        peeled,
        sensitivities=peeled.sensitivities.index_put(at, kinks.parts * fires),
        kink=peeled.kink.index_put(at, torch.zeros_like(kinks.parts)),
        told=peeled.told.index_put(at, torch.where(fires, 1.0, -1.0).to(peeled.told.dtype)),
    )


def _alone(peeled: SampleBlock) -> _Kinks:
    """Uncertainties at neurons that have exactly one."""
    doubt = peeled.kink != 0
    samples, neurons = (doubt & (doubt.sum(0) == 1)).nonzero(as_tuple=True)
    taken, kink = peeled.sensitivities[samples, neurons], peeled.kink[samples, neurons]
    fires = taken != 0
    return _Kinks(samples, neurons, torch.where(fires, taken, kink), kink, fires)


def _suppose(residual: Residual, kinks: _Kinks, coordinates: Tensor, *, turned: Tensor) -> None:
    """Let samples fire as they are assumed to, or, where `turned`, the opposite."""
    back = torch.where(kinks.fires, kinks.parts, -kinks.parts) * turned
    residual.settle_doubt(kinks.neurons, kinks.doubt, back, coordinates[kinks.samples])
