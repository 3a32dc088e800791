"""What can be read from an update beyond the certified samples: see `gradpeel.decoder.unproven`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from gradpeel.decoder.candidates import find
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sample_block import SampleBlock
from gradpeel.decoder.share import fit_labels
from gradpeel.decoder.simulate import Backward
from gradpeel.decoder.state import State
from gradpeel.decoder.unproven import Reading

__all__ = ["Solved", "read_uncertified"]


@dataclass(frozen=True, eq=False)
class Solved:
    """Samples that the row cascade solved for.

    Attributes:
        samples: the samples.
        combinations: (n, neurons) the same as combinations of the gradient's rows, as it was sent.
    """

    samples: SampleBlock
    combinations: Tensor


def read_uncertified(
    state: State,
    direction: Tensor,
    *,
    unit: Backward | None,
    groups: Mapping[int, tuple[int, float]],
    certifies: bool,
    solved: Solved | None,
) -> tuple[Reading, Tensor]:
    """Read what the first and the last examination yield, and what was found without a proof.

    Args:
        state: the cascade at its end.
        direction: (width,) along which candidates are compared.
        unit: the client's backward pass with a share of 1, where it can be simulated.
        groups: for neurons that yield the mean of a group, its size and radius.
        certifies: whether samples that were found are certified.
        solved: the samples that the row cascade solved for, if it did.

    Returns:
        The candidates, the most credible first; and (found, neurons) the samples that they refer
        to, as combinations of the rows of the gradient.
    """
    known = state.known.peeled.sensitivities
    combinations = state.known.combinations()
    found = [_read(state, state.residual, known, direction, unit, groups)]
    if len(known):
        sent = state.residual.clone()
        sent.restore()
        found.append(_read(state, sent, torch.zeros_like(known), direction, unit, groups))
    if not certifies:
        found.append(_whole(state.known.sources, state.known.residuals, before=0))
    if solved is not None:
        new = ~state.known.knows(solved.samples.coordinates, solved.samples.sample_error)
        combinations = torch.cat([combinations, solved.combinations[new]])
        samples = solved.samples.pick(new)
        sources = samples.sensitivities.abs().argmax(1)
        found.append(_whole(sources, samples.sample_error, before=len(known)))
    width = len(combinations)
    reading = Reading.joined(
        *(replace(one, known=pad(one.known, (0, width - one.known.shape[1]))) for one in found)
    )
    return reading.pick(reading.mismatch.argsort(stable=True)), combinations


def _whole(sources: Tensor, mismatch: Tensor, *, before: int) -> Reading:
    """Samples that were found as a whole, without a proof.

    Args:
        sources: (n,) a neuron that each fires.
        mismatch: (n,) how far each may be off.
        before: number of other samples that stand before them in the order of all.
    """
    one = torch.eye(len(sources)).to(mismatch)
    return Reading(
        sources,
        torch.zeros_like(mismatch),
        pad(-one, (before, 0)),
        mismatch,
        torch.zeros_like(sources),
        torch.full_like(mismatch, torch.inf),
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
