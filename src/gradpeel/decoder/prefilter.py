"""A first test of candidates that is cheap enough to be applied to all of them every time.

Nearly all neurons yield mixtures, and a single test exposes nearly all mixtures: the next layer's
residual at their own neuron. It needs only the output of the next layer, a few numbers per
candidate. A candidate that fails it by far would fail the certificate; only the others are formed
and judged. Nothing is accepted here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Readings
from gradpeel.decoder.evidence.equations import next_layer
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import batches
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulate import Backward, Simulated

__all__ = ["glance", "share_firing"]

_AT_ONCE = 128
"""Candidates processed at once, few enough to stay in the cache."""


def glance(
    readings: Readings, residual: Residual, backward: Backward, *, strict: bool
) -> tuple[Tensor, Simulated | None]:
    """Determine which candidates the tail may certify.

    Args:
        readings: where the candidates can be read.
        residual: the residual they were found in.
        backward: the client's backward pass behind the target.
        strict: as for the certificate.

    Returns:
        (n,) mask of those that may, and what was simulated of them.
    """
    worth = torch.ones_like(readings.error, dtype=torch.bool)
    if not residual.has_next or backward.tail.next_layer is None:
        return worth, None
    worth = _of_one_label(readings, residual, backward, strict=strict)
    few = worth.nonzero()[:, 0]
    seen = [
        _look(
            readings.neurons[few[some]],
            readings.error[few[some]],
            residual,
            backward,
            strict=strict,
        )
        for some in batches(max(len(few), 1), _AT_ONCE)
    ]
    passes = torch.cat([mask for mask, _ in seen])
    return worth.index_copy(0, few, passes), Simulated.joined([some for _, some in seen])


def _of_one_label(
    readings: Readings, residual: Residual, backward: Backward, *, strict: bool
) -> Tensor:
    """(n,) mask: which candidates the signs of the next layer's residual do not exclude.

    Before a softmax the gradient of one sample is negative at its label only. That of a mixture of
    several labels is negative at several, by more than the certificate allows.
    """
    response = backward.largest_response
    if response is None:
        return torch.ones_like(readings.error, dtype=torch.bool)
    neurons, resolution = readings.neurons, residual.resolution
    rows = residual.next_rows[neurons]
    own = residual.own_pre_activations(neurons)
    size = 2 * rows.abs().amax(1)
    relative = response * (readings.error + resolution) + resolution
    relative = relative + readings.error * residual.spread / own
    weight = backward.share * float(backward.targets.sum(1).max())
    off = residual.next_error[neurons] + size * relative + resolution * own * weight
    limit = LIMITS.by_far * LIMITS.slack * off
    if not strict:
        trace = LIMITS.by_far * math.sqrt(residual.grain)
        limit = torch.maximum(limit, trace * size * (residual.spread / own).clamp(min=1.0))
    # Where the simulation is that inexact, its size is not that of the residual.
    vague = LIMITS.by_far * LIMITS.slack * relative > 0.5
    return ((rows < -limit[:, None]).sum(1) <= 1) | vague


def _look(
    neurons: Tensor, error: Tensor, residual: Residual, backward: Backward, *, strict: bool
) -> tuple[Tensor, Simulated]:
    activations = residual.pre_activations(residual.coordinates(neurons)).relu_()
    simulated = backward.glance(activations, neurons, residual.bias)
    allowed = backward.error(simulated, error + residual.resolution, residual.resolution)
    own = activations.gather(1, neurons[:, None])
    units, mismatch = next_layer(neurons, error, residual, own, simulated.v, allowed)
    passes = units <= LIMITS.by_far * LIMITS.slack
    if not strict:
        passes |= mismatch <= LIMITS.by_far * math.sqrt(residual.grain)
    return passes, simulated.pick(passes)


def share_firing(readings: Readings, residual: Residual) -> Tensor:
    """(neurons,) the share of candidates that fire each neuron, estimated from some of them."""
    some = readings.neurons[:: max(1, len(readings) // LIMITS.firing_candidates)]
    fires = residual.pre_activations(residual.coordinates(some)) > 0
    return fires.sum(0) / max(len(some), 1)
