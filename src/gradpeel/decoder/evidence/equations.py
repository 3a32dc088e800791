"""The equations of the tail: a simulated candidate compared with the residual it was read from.

- The bias equation, at every neuron that isolates it (paper, eq. cert).
- The next layer's, one for each of its outputs: at a singleton that layer's gradient is a_j v.

Both are relative to a tracked error. Together they prove less than their number suggests: with a
nearly linear tail all samples of one label have nearly the same v, so that a mixture of them
satisfies the next layer's equations together, up to the second order in their distance. But it does
not have the weight of one sample: that is what the bias equation tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sample_block import typical
from gradpeel.decoder.simulate import Backward, Simulated

__all__ = ["Equations", "next_layer", "tail_equations"]


@dataclass(frozen=True, eq=False)
class Equations:
    """How well some equations hold, for every candidate.

    Attributes:
        units: (n,) worst mismatch in units of its tracked error.
        mismatch: (n,) worst relative mismatch.
        chance: (n,) probability that a mixture matches as well by luck, for one label.
        equations: (n,) number of equations that count.
    """

    units: Tensor
    mismatch: Tensor
    chance: Tensor
    equations: Tensor


def tail_equations(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    simulated: Simulated,
    allowed: Tensor,
) -> Equations:
    """Compare simulated candidates with the residual they were read from.

    Args:
        candidates: the candidates.
        residual: the residual.
        backward: the client's backward pass behind the target.
        simulated: the candidates, each with a label, or with copies of several.
        allowed: (n,) relative error of what is simulated.
    """
    z = candidates.pre_activations
    fires = z > 0
    bias, again = _bias_equation(candidates, residual, simulated.c * fires, allowed)
    tests = [bias]
    if residual.has_next:
        tests.append(_whole_next_layer(candidates, residual, z * fires, simulated.v, allowed))
        parallel = tests[1].chance
    else:
        gap = bias.mismatch.clamp(min=residual.resolution) * simulated.margin
        parallel = _luck(simulated.gradient.abs(), gap).prod(1)
    chance = torch.stack([test.chance for test in tests]).prod(0)
    if backward.share_from is not None:
        # There the weight was fitted: an equation that holds because of that proves nothing.
        fitted = candidates.neurons == backward.share_from
        chance = torch.where(fitted, chance / bias.chance, chance)
    # Several neurons yield the same mixture only if the loss gradients in it are parallel; then
    # what holds at one of them holds at all.
    chance = chance * torch.maximum(again, parallel)
    # A prediction that is certain and wrong has p - e_y = +-1 at two classes, for every sample, so
    # that mixtures such as a + b - c satisfy the equations to the last digit. As far as the loss
    # gradient does not respond to the candidate the equations prove nothing; the structure must.
    chance = chance / simulated.response.clamp(torch.finfo(z.dtype).tiny, 1.0)
    return Equations(
        units=torch.stack([test.units for test in tests]).amax(0),
        mismatch=torch.stack([test.mismatch for test in tests]).amax(0),
        chance=chance,
        equations=torch.stack([test.equations for test in tests]).sum(0),
    )


def _bias_equation(
    candidates: Candidates, residual: Residual, c: Tensor, allowed: Tensor
) -> tuple[Equations, Tensor]:
    """The bias equation at every neuron that isolates a candidate (paper, eq. cert).

    Mismatches are relative to the typical sensitivity of the candidate, not to the one at this
    neuron: that may be small by cancellation, and its error is not.

    Returns the test, with the chance of its worst equation, and (n,) the chance of all others.
    """
    row, column = candidates.pairs
    observed = residual.bias[column]
    size = torch.maximum(typical(c)[row], observed.abs())
    gap = (c[row, column] - observed).abs()
    error = residual.bias_error[column] + allowed[row] * size
    luck = (2 * gap / size).clamp(min=residual.resolution, max=1.0).log()
    none = torch.zeros_like(allowed)
    worst = (none - torch.inf).scatter_reduce(0, row, luck, "amax")
    test = Equations(
        none.scatter_reduce(0, row, gap / error, "amax"),
        none.scatter_reduce(0, row, gap / size, "amax"),
        worst.exp(),
        torch.bincount(row, minlength=len(candidates)),
    )
    return test, (none.scatter_add(0, row, luck) - worst).exp()


def next_layer(  # noqa: PLR0917 -- all of them belong to each candidate
    neurons: Tensor, error: Tensor, residual: Residual, own: Tensor, v: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """How far the next layer's residual at a candidate's neuron deviates from a_j v.

    Args:
        neurons: (n,) the neuron each candidate was read from.
        error: (n,) relative error of the candidates.
        residual: the residual they were read from.
        own: (n, 1) their activations a_j at their own neurons.
        v: (n, next width) as simulated.
        allowed: (n,) relative error of v.

    Returns:
        (n,) the worst mismatch in units of its tracked error, and (n,) relative to another sample.
    """
    gap = (residual.next_rows[neurons] - own * v).abs().amax(1)
    size = v.abs().amax(1)
    off = residual.next_error[neurons] + size * (error * residual.spread + own[:, 0] * allowed)
    # Another sample in a mixture would have a typical activation, not this neuron's possibly tiny
    # one.
    return gap / off, gap / (size * own[:, 0].clamp(min=residual.spread))


def _whole_next_layer(
    candidates: Candidates, residual: Residual, activations: Tensor, v: Tensor, allowed: Tensor
) -> Equations:
    """The test by the next layer, with one equation per entry."""
    neurons = candidates.neurons
    own = activations.gather(1, neurons[:, None])
    units, mismatch = next_layer(neurons, candidates.error, residual, own, v, allowed)
    predicted = own * v
    gap = (residual.next_rows[neurons] - predicted).abs().amax(1)
    luck = _luck(predicted.abs(), torch.maximum(gap, residual.resolution * predicted.abs().amax(1)))
    return Equations(units, mismatch, luck.prod(1), (luck < 1.0).sum(1))


def _luck(entries: Tensor, gap: Tensor) -> Tensor:
    """(n, width - 2) chance of each entry of a loss gradient to match within a gap (n,) by luck.

    Entries below the gap match anyway and prove nothing: a saturated sample has only two that
    count. Of the largest two, one follows from the others (before a softmax they sum to zero) and
    one from the bias equation.
    """
    telling = entries.sort(dim=1, descending=True).values[:, 2:]
    return (2 * gap[:, None] / telling).clamp(max=1.0)
