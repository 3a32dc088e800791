"""The certificate: evidence, without ground truth, that a candidate is a real sample.

A neuron that a single unrecovered sample fires hands out that sample; any other live neuron hands
out a mixture (paper, section "Certification"). The two are told apart by simulating the candidate:
its own forward and backward pass must explain the residual it was read from. The published rule is
one scalar equation with an absolute tolerance, which is wrong in both directions: it lets through
mixtures whose gradient is small and turns away samples whose gradient is large. Here every
comparison is relative to a tracked error.

Formal guarantees, for an accepted candidate read from neuron j:

- Firing. It fires at j.
- Bias equation. With its label it predicts the residual bias of *every* neuron whose candidate is
  the same vector, within SLACK times the tracked error there.
- Next layer. Where the tail begins with a Linear whose gradient came along, it predicts that
  layer's whole residual at j, an equation for each output, within SLACK times their tracked error.
- Support. It has no sensitivity above the error at a neuron whose residual is already zero.
- Weight of evidence. The chance that a mixture would satisfy these equations as well as it does is
  at most CHANCE: the number of labels tried times the product of the relative mismatches, entries
  too small to tell counting for nothing. Where that is not enough, its sensitivities must lie in
  the column space of the update (see `gradpeel.decoder.structure`).
- Response. Equations count only as far as the loss gradient responds to the candidate.
- Exactness. Its error, corrected by how well the equations hold, is at most EXACT.
- Relativity. Multiplying the whole update by a constant, together with the loss, changes no
  verdict.

When a cascade has stalled the loop asks once more, not strictly: then mismatches of the bias and
next-layer equations up to half the digits of the dtype are accepted, as a trace of a sample with
next to no gradient; all else holds. The loop adds three guarantees: no sample is accepted twice,
none outside a declared data range, and none whose numbers are not those it was certified by. What
is not promised: a sample that does not come back is not thereby safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulation import Probe, simulate
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import CHANCE, EXACT, LOOSEST, SLACK
from gradpeel.target import Tail

__all__ = ["Verdicts", "certify"]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What the certificate says of each candidate.

    Attributes:
        accepted: (n,) mask.
        vague: (n,) mask of those that nothing speaks against but their own error.
        labels: (n,) the label that explains the residual best.
        mismatch: (n,) worst relative mismatch over all equations.
        chance: (n,) probability that a mixture would do as well.
        equations: (n,) number of equations that count.
        peeled: what subtracting each candidate needs.
    """

    accepted: Tensor
    vague: Tensor
    labels: Tensor
    mismatch: Tensor
    chance: Tensor
    equations: Tensor
    peeled: Peeled


def certify(
    candidates: Candidates,
    residual: Residual,
    tail: Tail,
    probe: Probe,
    structure: Structure,
    *,
    strict: bool = True,
) -> Verdicts:
    """Fit a label to every candidate and test it against the residual.

    Args:
        candidates: distinct candidates.
        residual: the residual they were read from.
        tail: the network behind the target, in float64 and evaluation mode.
        probe: the samples' weight in the loss, and how errors are probed.
        structure: the column space of the update, asked where the equations alone prove too little.
        strict: demand that every mismatch is explained by the tracked error. Otherwise half the
            digits of the update's dtype will do: a sample with a trace of one that has next to no
            gradient.
    """
    z = candidates.pre_activations
    fires = z > 0
    activations = z * fires
    labels = _fit_labels(tail, activations, candidates.neurons, residual.bias / probe.share)
    simulated = simulate(tail, activations, labels, probe)
    allowed = simulated.error(candidates.error + residual.resolution, residual.resolution)

    tests = [_bias_equation(candidates, residual, simulated.c * fires, allowed)]
    if residual.has_next:
        tests.append(_next_layer(candidates, residual, activations, simulated.v, allowed))
    units = torch.stack([test.units for test in tests]).amax(0)
    mismatch = torch.stack([test.mismatch for test in tests]).amax(0)
    chance = simulated.classes * torch.stack([test.chance for test in tests]).prod(0)
    # A prediction that is certain and wrong has p - e_y = +-1 at two classes, whatever the sample,
    # so that mixtures such as a + b - c satisfy the equations to the last digit. As far as the loss
    # gradient does not respond to the candidate they prove nothing; the structure must.
    chance = chance / simulated.response.clamp(torch.finfo(z.dtype).tiny, 1.0)

    # The equations measure the error too: how far they are off, in units of the tracked error,
    # corrects it, so that neither pessimism nor a trace of another sample piles up unseen.
    correction = (4 * units).clamp(min=1 / SLACK)
    error = candidates.error * correction + residual.resolution
    doubt = z.abs() <= SLACK * error[:, None] * residual.spread
    explained = units <= SLACK if strict else mismatch <= math.sqrt(residual.resolution)
    quiet = residual.quiet
    firm = simulated.c[:, quiet] * (fires & ~doubt)[:, quiet]
    trespasses = (firm.abs() > SLACK * residual.bias_error[quiet]).any(1)
    accepted = explained & ~trespasses & (mismatch <= LOOSEST) & (error <= EXACT)
    equations = torch.stack([test.equations for test in tests]).sum(0)
    weak = (accepted & (chance > CHANCE)).nonzero()[:, 0]
    luck, more = structure.chance(simulated.c[weak] * fires[weak])
    chance[weak] *= luck
    equations[weak] += more
    accepted &= chance <= CHANCE
    vague = explained & ~trespasses & ~accepted

    v, c, off = simulated.v, simulated.c, allowed * correction
    if tail.next_layer is not None and residual.has_next:
        v, off = _measure_v(candidates, residual, activations, v, error=error, computed=off)
        c = v @ tail.next_layer.weight
    peeled = Peeled(
        coordinates=candidates.coordinates,
        activations=activations,
        sensitivities=_measure_c(candidates, residual, c * fires, off),
        next_sensitivities=v,
        sample_error=error,
        sensitivity_error=off,
        kink=c * doubt,
    )
    return Verdicts(accepted, vague, labels, mismatch, chance, equations, peeled)


def _fit_labels(tail: Tail, activations: Tensor, neurons: Tensor, bias: Tensor) -> Tensor:
    """The label whose predicted bias entry is nearest to the observed one (paper, eq. labelfit).

    One forward-mode pass along each candidate's own neuron predicts the entry for all labels at
    once.
    """
    own = torch.zeros_like(activations)
    own[torch.arange(len(neurons)), neurons] = 1.0
    logits, along = torch.func.jvp(tail, (activations,), (own,))[:2]
    p = torch.softmax(logits, 1)
    predicted = (p * along).sum(1, keepdim=True) - along
    # For the most likely class both terms are nearly equal; summing differences keeps the digits.
    top = logits.argmax(1, keepdim=True)
    exact = (p.scatter(1, top, 0.0) * (along - along.gather(1, top))).sum(1, keepdim=True)
    predicted = predicted.scatter(1, top, exact)
    nearest: Tensor = (predicted - bias[neurons, None]).abs().argmin(1)
    return nearest


@dataclass(frozen=True, eq=False)
class _Test:
    """One kind of evidence, for every candidate.

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


def _bias_equation(candidates: Candidates, residual: Residual, c: Tensor, allowed: Tensor) -> _Test:
    """The bias equation at every neuron that isolates a candidate (paper, eq. cert).

    Mismatches are relative to the typical sensitivity of the candidate, not to the one at hand:
    that may be small by cancellation, and its error is not.
    """
    row, column = candidates.pairs
    observed = residual.bias[column]
    size = torch.maximum(typical(c)[row], observed.abs())
    gap = (c[row, column] - observed).abs()
    error = residual.bias_error[column] + allowed[row] * size
    luck = (2 * gap / size).clamp(min=residual.resolution, max=1.0).log()
    none = torch.zeros_like(allowed)
    return _Test(
        none.scatter_reduce(0, row, gap / error, "amax"),
        none.scatter_reduce(0, row, gap / size, "amax"),
        none.scatter_add(0, row, luck).exp(),
        torch.bincount(row, minlength=len(candidates)),
    )


def _next_layer(
    candidates: Candidates, residual: Residual, activations: Tensor, v: Tensor, allowed: Tensor
) -> _Test:
    """The next layer's residual at the candidate's neuron is a_j v, an equation for each entry."""
    neurons = candidates.neurons
    own = activations.gather(1, neurons[:, None])
    predicted = own * v
    size = predicted.abs().amax(1)
    gap = (residual.next_rows[neurons] - predicted).abs().amax(1)
    blur = candidates.error * residual.spread * v.abs().amax(1)
    error = residual.next_error[neurons] + blur + size * allowed
    # Another sample in the mix would have a typical activation, not this neuron's, maybe tiny, one.
    mismatch = gap / (v.abs().amax(1) * own[:, 0].clamp(min=residual.spread))
    # Entries below the gap match anyhow and prove nothing: a saturated sample has only two that
    # count. Of the largest two, one follows from the others (before a softmax they sum to zero) and
    # one from the bias equation at the same neuron.
    entries = predicted.abs().sort(dim=1, descending=True).values[:, 2:]
    floor = residual.resolution * size[:, None]
    luck = (2 * torch.maximum(gap[:, None], floor) / entries).clamp(max=1.0)
    return _Test(gap / error, mismatch, luck.prod(1), (luck < 1.0).sum(1))


def _measure_v(
    candidates: Candidates,
    residual: Residual,
    activations: Tensor,
    v: Tensor,
    *,
    error: Tensor,
    computed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Read v off the next layer's residual where that is more exact than computing it.

    At an isolating neuron the next layer's residual is a_j v, so v can be measured: with no more
    error than the residual has, whereas a computed v carries the logits' response to every error
    and differs from the client's by the roundings of two forward passes.

    Args:
        candidates: the candidates.
        residual: the current residual.
        activations: (n, neurons).
        v: (n, next width) as computed.
        error: (n,) relative error of the candidates.
        computed: (n,) relative error of the computed v.

    Returns:
        v and its relative error.
    """
    row, column = candidates.pairs
    a = activations[row, column]
    size = v.abs().amax(1)
    blur = (error * residual.spread * size)[row]
    weight = 1.0 / (residual.next_error[column].square() + blur.square())
    votes = (weight * a)[:, None] * residual.next_rows[column]
    top = torch.zeros_like(v).index_add_(0, row, votes)
    bottom = torch.zeros_like(error).index_add_(0, row, weight * a.square())
    measured = 1.0 / (bottom.sqrt() * size)
    better = measured < computed
    v = torch.where(better[:, None], top / bottom[:, None], v)
    return v, torch.where(better, measured, computed)


def _measure_c(candidates: Candidates, residual: Residual, c: Tensor, off: Tensor) -> Tensor:
    """At a neuron that isolates the candidate the residual bias *is* its sensitivity.

    Where computing it is more exact than that, the difference is a trace of a fainter sample, and
    stays in the residual.
    """
    row, column = candidates.pairs
    better = residual.bias_error[column] < (typical(c) * off)[row]
    row, column = row[better], column[better]
    c = c.clone()
    c[row, column] = residual.bias[column]
    return c
