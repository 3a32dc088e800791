"""The certificate: evidence, without ground truth, that a candidate is a real sample (paper, "Certification").

A neuron that a single unrecovered sample fires hands out that sample; any other live neuron hands out a
mixture. The two are told apart by simulating the candidate: its own forward and backward pass must
explain the residual it was read from. The published rule is one scalar equation with an absolute
tolerance, which is wrong in both directions: it lets through mixtures whose gradient is small and turns
away samples whose gradient is large. Here every comparison is relative to a tracked error.

Formal guarantees, for a candidate read from neuron j with tracked relative error r:

- Firing. An accepted candidate fires at j.
- Bias equation. With its label it predicts the residual bias of *every* neuron whose candidate is the same
  vector, within SLACK times the tracked error there.
- Next layer. Where the tail begins with a Linear whose gradient came along, it predicts that layer's
  whole residual column at j, as many equations as that layer is wide, within SLACK times their error.
- Support. It has no sensitivity above the error at a neuron whose residual is already zero.
- Range. If a data range was declared, the sample lies within it, up to its own error.
- Weight of evidence. The chance that a mixture satisfies these equations as well as it does by luck,
  estimated as the number of labels tried times the product of the relative mismatches, is at most
  `CHANCE`. A loose match is thus only ever good enough where there are many equations.
- Relativity. Multiplying the whole update by a constant, together with the loss, changes no verdict.
- Distinctness. No sample is accepted twice (see `gradpeel.decoder.peeling`).

What it does not promise: a sample that comes back may be off by its reported error, and a sample that
does not come back is not thereby safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.residual import SLACK, Residual
from gradpeel.decoder.simulation import simulate
from gradpeel.target import Tail

__all__ = ["CHANCE", "EXACT", "LOOSEST", "Verdicts", "certify"]

LOOSEST = 1e-3
"""Largest accepted relative mismatch of any equation, however large the tracked error."""

EXACT = 2.5e-4
"""Largest accepted relative error of a sample."""

CHANCE = 1e-9
"""Largest accepted probability that one candidate is certified by luck."""


@dataclass(frozen=True)
class Verdicts:
    """What the certificate says of each candidate.

    Attributes:
        accepted: (n,) mask.
        labels: (n,) the label that explains the residual best.
        residuals: (n,) worst relative mismatch over all equations used.
        chance: (n,) probability of passing by luck.
        equations: (n,) number of equations behind the verdict.
        peeled: what subtracting each candidate needs.
    """

    accepted: Tensor
    labels: Tensor
    residuals: Tensor
    chance: Tensor
    equations: Tensor
    peeled: Peeled


def certify(
    candidates: Candidates,
    residual: Residual,
    tail: Tail,
    *,
    share: float,
    signs: Tensor,
    strict: bool = True,
) -> Verdicts:
    """Fit a label to every candidate and test it against the residual.

    Args:
        candidates: distinct candidates.
        residual: the residual they were read from.
        tail: the network behind the target, in float64 and evaluation mode.
        share: weight of one sample in the batch loss.
        signs: (neurons,) random +1 and -1, along which the logits' response to errors is probed.
        strict: demand that every mismatch is explained by the tracked error. Otherwise half the digits of
            the update's dtype will do: a sample together with one whose gradient is next to nothing.
    """
    neurons, z = candidates.neurons, candidates.pre_activations
    fires = z > 0
    activations = z * fires
    logits, along_own = _along_own_neuron(tail, activations, neurons)
    labels = _fit_labels(logits, along_own, residual.bias[neurons] / share)
    simulated = simulate(tail, activations, labels, share=share, unit_error=signs * residual.spread)
    v, c_all = simulated.v, simulated.c
    c = c_all * fires
    allowed = simulated.error(candidates.error + residual.resolution, residual.resolution)

    pairs = _pairs(candidates)
    tests = [_bias_equation(pairs, residual, c, allowed, c_all.square().mean(1).sqrt())]
    if residual.next_rows is not None:
        tests.append(_next_layer(candidates, residual, activations, v, allowed))
    units = torch.stack([test.units for test in tests]).amax(0)
    mismatch = torch.stack([test.mismatch for test in tests]).amax(0)
    chance = logits.shape[1] * torch.stack([test.chance for test in tests]).prod(0)
    close = units <= SLACK if strict else mismatch <= math.sqrt(residual.resolution)
    accepted = close & (mismatch <= LOOSEST) & (chance <= CHANCE)

    # The equations measure the error too: how far they are off, in units of the tracked one, corrects it,
    # so that pessimism does not pile up along the cascade.
    correction = (4 * units).clamp(min=1 / SLACK)
    error = candidates.error * correction + residual.resolution
    accepted &= error <= EXACT
    doubt = z.abs() <= SLACK * error[:, None] * residual.spread
    quiet = residual.quiet
    trespass = (c[:, quiet].abs() > SLACK * residual.bias_error[quiet]) & ~doubt[:, quiet]
    accepted &= ~trespass.any(1)

    off = allowed * correction
    if residual.next_rows is not None:
        assert tail.next_layer is not None
        v, off = _measure(pairs, residual, activations, v, error, off)
        c_all = v @ tail.next_layer.weight
        c = c_all * fires
    # At a neuron that isolates the candidate the residual *is* its sensitivity. Where computing it is
    # more exact, the difference is a trace of a fainter sample, and stays in the residual.
    size = c_all.square().mean(1).sqrt() * off
    measured = residual.bias_error[pairs.column] < size[pairs.row]
    row, column = pairs.row[measured], pairs.column[measured]
    c[row, column] = residual.bias[column]
    return Verdicts(
        accepted,
        labels,
        mismatch,
        chance,
        sum((test.equations for test in tests), torch.zeros_like(labels)),
        Peeled(
            coordinates=candidates.coordinates,
            activations=activations,
            sensitivities=c,
            next_sensitivities=v,
            sample_error=error,
            sensitivity_error=off,
            kink=c_all * doubt,
        ),
    )


@dataclass(frozen=True)
class _Test:
    """One kind of evidence, for every candidate.

    Attributes:
        units: worst mismatch in units of its tracked error.
        mismatch: worst relative mismatch.
        chance: probability that a mixture matches as well by luck, for one label.
        equations: number of equations.
    """

    units: Tensor
    mismatch: Tensor
    chance: Tensor
    equations: Tensor


@dataclass(frozen=True)
class _Pairs:
    """Candidate and neuron of every isolation: `row` indexes candidates, `column` neurons."""

    row: Tensor
    column: Tensor
    sizes: Tensor


def _pairs(candidates: Candidates) -> _Pairs:
    sizes = torch.tensor([len(group) for group in candidates.groups], dtype=torch.long)
    row = torch.arange(len(sizes)).repeat_interleave(sizes)
    return _Pairs(row, torch.cat([*candidates.groups, row[:0]]), sizes)


def _bias_equation(
    pairs: _Pairs, residual: Residual, c: Tensor, allowed: Tensor, size: Tensor
) -> _Test:
    """The bias equation at every neuron that isolates a candidate (paper, eq. cert).

    Mismatches are relative to the `size` of the candidate's sensitivities, not to the one at hand: that
    may be small by cancellation, and its error is not.
    """
    observed = residual.bias[pairs.column]
    size = torch.maximum(size[pairs.row], observed.abs())
    error = residual.bias_error[pairs.column] + allowed[pairs.row] * size
    gap = (c[pairs.row, pairs.column] - observed).abs()
    luck = (2 * gap / size).clamp(min=residual.resolution, max=1.0).log()
    none = torch.zeros_like(allowed)
    return _Test(
        none.scatter_reduce(0, pairs.row, gap / error, "amax"),
        none.scatter_reduce(0, pairs.row, gap / size, "amax"),
        none.scatter_add(0, pairs.row, luck).exp(),
        pairs.sizes,
    )


def _next_layer(
    candidates: Candidates, residual: Residual, activations: Tensor, v: Tensor, allowed: Tensor
) -> _Test:
    """The next layer's residual at the candidate's neuron is a_j v, an equation for each entry."""
    assert residual.next_rows is not None
    neurons = candidates.neurons
    predicted = activations.gather(1, neurons[:, None]) * v
    size = predicted.abs().amax(1)
    blur = candidates.error * residual.spread * v.abs().amax(1)
    error = residual.next_error[neurons] + blur + size * allowed
    gap = (residual.next_rows[neurons] - predicted).abs().amax(1)
    # Entries smaller than the gap match anyhow and prove nothing: a saturated sample has only two that
    # count. Of the largest two, one follows from the others (they sum to zero) and one from the bias
    # equation at the same neuron.
    entries = predicted.abs().sort(dim=1, descending=True).values[:, 2:]
    luck = (2 * gap[:, None] / entries).clamp(min=residual.resolution, max=1.0)
    equations = 1 + (luck < 1.0).sum(1)
    return _Test(gap / error, gap / size, luck.prod(1), equations)


def _measure(
    pairs: _Pairs, residual: Residual, activations: Tensor, v: Tensor, error: Tensor, off: Tensor
) -> tuple[Tensor, Tensor]:
    """Read v off the next layer's residual where that is more exact than computing it.

    At an isolating neuron the next layer's residual is a_j v, so v can be measured: with no more error
    than the residual has, whereas a computed v carries the logits' response to every error and differs
    from the client's by the roundings of two forward passes.

    Args:
        pairs: candidates and the neurons that isolate them.
        residual: the current residual.
        activations: (n, neurons).
        v: (n, next width) as computed.
        error: (n,) relative error of the candidates.
        off: (n,) relative error of the computed v.

    Returns:
        v and its relative error.
    """
    assert residual.next_rows is not None
    a = activations[pairs.row, pairs.column]
    size = v.abs().amax(1)
    blur = (error * residual.spread * size)[pairs.row]
    weight = 1.0 / (residual.next_error[pairs.column].square() + blur.square())
    votes = (weight * a)[:, None] * residual.next_rows[pairs.column]
    top = torch.zeros_like(v).index_add_(0, pairs.row, votes)
    bottom = torch.zeros_like(error).index_add_(0, pairs.row, weight * a.square())
    measured = 1.0 / (bottom.sqrt() * size)
    better = measured < off
    return torch.where(better[:, None], top / bottom[:, None], v), torch.where(
        better, measured, off
    )


def _along_own_neuron(tail: Tail, activations: Tensor, neurons: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and their derivative along each candidate's own neuron, by one forward-mode pass.

    The derivative gives the predicted bias entry for every label at once.
    """
    own = torch.zeros_like(activations)
    own[torch.arange(len(neurons)), neurons] = 1.0
    logits, along_own = torch.func.jvp(tail, (activations,), (own,))[:2]
    return logits, along_own


def _fit_labels(logits: Tensor, along_own: Tensor, observed: Tensor) -> Tensor:
    """The label whose predicted bias entry is nearest to the observed one (paper, eq. labelfit)."""
    p = torch.softmax(logits, 1)
    predicted = (p * along_own).sum(1, keepdim=True) - along_own
    # For the most likely class both terms are nearly equal; summing differences keeps the digits.
    top = logits.argmax(1, keepdim=True)
    exact = (p.scatter(1, top, 0.0) * (along_own - along_own.gather(1, top))).sum(1, keepdim=True)
    predicted = predicted.scatter(1, top, exact)
    return (predicted - observed[:, None]).abs().argmin(1)
