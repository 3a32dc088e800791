"""What can be read from an update beyond the certified samples: see `gradpeel.decoder.unproven`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gradpeel.decoder.candidates import find
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.share import fit_labels
from gradpeel.decoder.simulate import Backward
from gradpeel.decoder.state import State
from gradpeel.decoder.unproven import Reading

__all__ = ["read_uncertified"]


def read_uncertified(
    state: State,
    direction: Tensor,
    *,
    unit: Backward | None,
    groups: Mapping[int, tuple[int, float]],
    certifies: bool,
) -> Reading:
    """Read what the first and the last examination yield, and what was found by a guess.

    Args:
        state: the cascade at its end.
        direction: (width,) along which candidates are compared.
        unit: the client's backward pass with a share of 1, where it can be simulated.
        groups: for neurons that yield the mean of a group, its size and radius.
        certifies: whether samples that were found are certified.

    Returns:
        The candidates, the most credible first.
    """
    known = state.known.peeled.sensitivities
    found = [_read(state, state.residual, known, direction, unit, groups)]
    if len(known):
        sent = state.residual.clone()
        sent.restore()
        found.append(_read(state, sent, torch.zeros_like(known), direction, unit, groups))
    if not certifies:
        found.append(_conjectured(state))
    reading = Reading.joined(*found)
    return reading.pick(reading.mismatch.argsort(stable=True))


def _conjectured(state: State) -> Reading:
    """The samples that were found by a guess."""
    known = state.known
    one = torch.eye(len(known)).to(known.own)
    return Reading(
        known.sources,
        torch.zeros_like(known.own),
        -one,
        known.residuals,
        torch.zeros_like(known.sources),
        torch.full_like(known.own, torch.inf),
    )


def _read(  # noqa: PLR0917 -- two looks at the same things
    state: State,
    residual: Residual,
    known: Tensor,
    direction: Tensor,
    unit: Backward | None,
    groups: Mapping[int, tuple[int, float]],
) -> Reading:
    """What a residual yields that is not a known sample.

    Args:
        state: the cascade at its end.
        residual: the residual.
        known: (known, neurons) sensitivities that were subtracted from it.
        direction: (width,) along which candidates are compared.
        unit: the client's backward pass with a share of 1, where it can be simulated.
        groups: for neurons that yield the mean of a group, its size and radius.
    """
    everywhere = torch.ones_like(residual.quiet)
    candidates = find(residual, everywhere, direction).form(residual)
    if len(candidates):
        news = ~state.known.knows(candidates.coordinates, candidates.error)
        candidates = candidates.pick(news)
    neurons = candidates.neurons
    if unit is not None and residual.has_next and len(candidates):
        mismatch = fit_labels(candidates, residual, unit).apart
    else:
        mismatch = candidates.error
    sizes = [groups.get(neuron, (0, math.inf)) for neuron in neurons.tolist()]
    bias = residual.bias[neurons]
    return Reading(
        neurons,
        1.0 / bias,
        known[:, neurons].T / bias[:, None],
        mismatch,
        neurons.new_tensor([size for size, _ in sizes]),
        mismatch.new_tensor([radius for _, radius in sizes]),
    )
