"""The certificate: evidence, without ground truth, that a candidate is a real sample.

A neuron that a single unrecovered sample fires hands out that sample; any other live neuron hands
out a mixture (paper, section "Certification"). The two are told apart in two ways. Where loss and
tail are known, the candidate is simulated: its own forward and backward pass must explain the
residual it was read from. Where they are not, its sensitivities, as the next layer's gradient
measures them or as they follow from where it fires, must lie in the column space of the update.
The published rule is one scalar equation with an absolute tolerance, which is wrong in both
directions: it lets through mixtures whose gradient is small and turns away samples whose gradient
is large. Here every comparison is relative to a tracked error.

Formal guarantees, for an accepted candidate read from neuron j:

- Firing. It fires at j.
- Bias equation. With its labels it predicts the residual bias of *every* neuron whose candidate is
  the same vector, within SLACK times the tracked error there.
- Next layer. Where the tail begins with a Linear whose gradient came along, it predicts that
  layer's whole residual at j, an equation for each output, within SLACK times their tracked error.
- Support. It has no sensitivity above the error at a neuron whose residual is already zero.
- Weight of evidence. The chance that a mixture would satisfy these equations as well as it does is
  at most CHANCE: the number of labels tried times the product of the relative mismatches, entries
  too small to tell counting for nothing, and further neurons no more than loss gradients can be
  told apart. Where that is not enough, its sensitivities must lie in the column space of the update
  (see `gradpeel.decoder.structure`).
- Response. Equations count only as far as the loss gradient responds to the candidate.
- Structure. Where tail, labels or loss are not known, its sensitivities lie in the column space of
  the update, nearer than LARGEST of what random ones would, in so many equations that the chance is
  at most CHANCE.
- Exactness. Its error, corrected by how well the equations hold, is at most EXACT.
- Relativity. Multiplying the whole update by a constant, together with the loss, changes no
  verdict.

When a cascade has stalled the loop asks once more, not strictly: then mismatches of the bias and
next-layer equations up to half the digits of the update are accepted too, as a trace of a sample
with next to no gradient; all else holds. At the very end one candidate at a time may be subtracted
on trial whose evidence falls short of CHANCE but not of SPECULATIVE: it stays only if what follows
from it makes up for that (see `gradpeel.decoder.ledger.Ledger.followers`). The loop adds four
guarantees: no sample is accepted twice, none outside a declared data range, none whose numbers are
not those it was certified by, and none by its structure that fires exactly the same neurons as
another that was certified or that several neurons hand out. What is not promised: a sample that
does not come back is not thereby safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradpeel.decoder.backward import Backward, Simulated
from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.groups import radius_of_groups
from gradpeel.decoder.labelling import MOST_COPIES
from gradpeel.decoder.measuring import measure_c, measure_v, trespassers
from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.structure import LARGEST, Structure
from gradpeel.decoder.tolerances import CHANCE, COPIES, EXACT, KINK, LOOSEST, SLACK

__all__ = ["Verdicts", "certify_by_structure", "certify_by_tail", "next_layer"]

_PART = 1e-3
"""Sensitivities below this part of the typical one are none."""

_WHOLE = 0.995
"""Share of the neurons that fire at which sensitivities must be found."""

_PRESENT = 0.25
"""The same where dropout may hide some."""


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What the certificate says of each candidate.

    Attributes:
        accepted: (n,) mask.
        sound: (n,) mask of those that hold but for the weight of their evidence.
        vague: (n,) mask of those that nothing speaks against but their own error.
        groups: (n,) mask of those that weigh as much as several samples, which may lie apart.
        radius: (n,) how far such members may be from their mean, relative to the typical size of a
            sample; 0 for a single one.
        mismatch: (n,) worst relative mismatch over all equations.
        chance: (n,) probability that a mixture would do as well.
        equations: (n,) number of equations that count.
        evidence: for each the kinds of evidence.
        peeled: what subtracting each candidate needs.
    """

    accepted: Tensor
    sound: Tensor
    vague: Tensor
    groups: Tensor
    radius: Tensor
    mismatch: Tensor
    chance: Tensor
    equations: Tensor
    evidence: tuple[Evidence, ...]
    peeled: Peeled

    def pick(self, mask: Tensor) -> Verdicts:
        """Those of some of the candidates."""
        return Verdicts(
            accepted=self.accepted[mask],
            sound=self.sound[mask],
            vague=self.vague[mask],
            groups=self.groups[mask],
            radius=self.radius[mask],
            mismatch=self.mismatch[mask],
            chance=self.chance[mask],
            equations=self.equations[mask],
            evidence=tuple(self.evidence[i] for i in mask.nonzero()[:, 0].tolist()),
            peeled=self.peeled.pick(mask),
        )


def certify_by_tail(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    structure: Structure,
    *,
    strict: bool = True,
    counts: Tensor | None = None,
    glanced: Simulated | None = None,
) -> Verdicts:
    """Simulate every candidate and test it against the residual.

    Args:
        candidates: distinct candidates.
        residual: the residual they were read from.
        backward: the client's backward pass behind the target.
        structure: the column space of the update, asked where the equations alone prove too little.
        strict: demand that every mismatch is explained by the tracked error. Otherwise half the
            digits of the update will do as well: a sample with a trace of one that has next to no
            gradient.
        counts: (n, classes) copies with each label; by default one label is fitted to each.
        glanced: what a first look at the candidates has shown, if there was one.
    """
    z = candidates.pre_activations
    fires = z > 0
    activations = z * fires
    # The label is fitted to the bias; the gradient at the logits shows it too, if it came along.
    tried = 1 if residual.has_next and backward.ends_at_next_layer else backward.classes
    if counts is not None:
        tried = MOST_COPIES * backward.classes
        glanced = backward.simulate(activations, counts)
    elif glanced is None:
        glanced = backward.glance(activations, candidates.neurons, residual.bias)
    simulated = backward.finish(glanced)
    allowed = backward.error(simulated, candidates.error + residual.resolution, residual.resolution)

    c = simulated.c * fires
    usual = typical(c)
    bias, again = _bias_equation(candidates, residual, c, usual, allowed)
    tests = [bias]
    if residual.has_next:
        tests.append(_next_layer(candidates, residual, activations, simulated.v, allowed))
        parallel = tests[1].chance
    else:
        gap = bias.mismatch.clamp(min=residual.resolution) * simulated.margin
        parallel = _luck(simulated.gradient.abs(), gap).prod(1)
    if backward.share_from is not None:
        # There the weight was fitted: an equation that holds because of it proves nothing.
        fitted = candidates.neurons == backward.share_from
        bias = replace(bias, chance=torch.where(fitted, 1.0, bias.chance))
        tests[0] = bias
    units = torch.stack([test.units for test in tests]).amax(0)
    mismatch = torch.stack([test.mismatch for test in tests]).amax(0)
    chance = tried * torch.stack([test.chance for test in tests]).prod(0)
    # Several neurons hand out the same mixture only if the loss gradients in it are parallel; then
    # what holds at one of them holds at all.
    chance = chance * torch.maximum(again, parallel)
    # A prediction that is certain and wrong has p - e_y = +-1 at two classes, whatever the sample,
    # so that mixtures such as a + b - c satisfy the equations to the last digit. As far as the loss
    # gradient does not respond to the candidate they prove nothing; the structure must.
    chance = chance / simulated.response.clamp(torch.finfo(z.dtype).tiny, 1.0)

    # The equations measure the error too: how far they are off, in units of the tracked error,
    # corrects it, so that neither pessimism nor a trace of another sample piles up unseen.
    correction = (2 * units).clamp(min=0.25)
    error = candidates.error * correction + residual.resolution
    doubt = z.abs() <= KINK * error[:, None] * residual.spread
    explained = units <= SLACK
    if not strict:
        explained |= mismatch <= math.sqrt(residual.grain)
    explained &= ~trespassers(residual, c * ~doubt)
    sound = explained & (mismatch <= LOOSEST) & (error <= EXACT)
    equations = torch.stack([test.equations for test in tests]).sum(0)
    helped = _ask_structure(structure, c, sound, chance, equations)
    accepted = sound & (chance <= CHANCE)
    # What weighs as much as several samples is copies of one only if they cannot lie apart.
    several = accepted & (simulated.counts.sum(1) > 1)
    radius = torch.zeros_like(chance).masked_scatter(
        several,
        radius_of_groups(
            candidates.pick(several),
            residual,
            backward,
            structure,
            counts=simulated.counts[several],
        ).each,
    )
    groups = accepted & (radius > COPIES)
    accepted &= ~groups

    v, unmasked, off = simulated.v, simulated.c, allowed * correction
    layer = backward.tail.next_layer
    if layer is not None and residual.has_next:
        measured, measured_off = measure_v(candidates, residual, activations, error)
        better = measured_off < off
        v = torch.where(better[:, None], measured, v)
        off = torch.where(better, measured_off, off)
        unmasked = v @ layer.weight
        c = unmasked * fires
    kinds = Evidence.BIAS | (Evidence.NEXT_LAYER if residual.has_next else Evidence(0))
    return Verdicts(
        accepted=accepted,
        sound=sound & ~groups,
        vague=explained & ~accepted & ~groups,
        groups=groups,
        radius=radius,
        mismatch=mismatch,
        chance=chance,
        equations=equations,
        evidence=tuple(
            kinds | Evidence.STRUCTURE if i in helped else kinds for i in range(len(candidates))
        ),
        peeled=Peeled(
            coordinates=candidates.coordinates,
            activations=activations,
            sensitivities=measure_c(candidates, residual, c, usual * off),
            next_sensitivities=v,
            counts=simulated.counts,
            sample_error=error,
            sensitivity_error=off,
            kink=unmasked * doubt,
            told=torch.zeros_like(c),
        ),
    )


def _ask_structure(
    structure: Structure, c: Tensor, sound: Tensor, chance: Tensor, equations: Tensor
) -> set[int]:
    """Ask the structure about candidates that little speaks for; tells for whom it spoke.

    Args:
        structure: the column space of the update.
        c: (n, neurons) sensitivities.
        sound: (n,) mask of candidates that hold but for the weight of their evidence.
        chance: (n,) what it is so far; lowered by what is found.
        equations: (n,) as many as that rests on; raised by what is found.
    """
    weak = (sound & (chance > CHANCE)).nonzero()[:, 0]
    if not len(weak):
        return set()
    distance, more = structure.distance(c[weak])
    luck = structure.chance(distance, more)
    chance[weak] *= luck
    equations[weak] += torch.where(luck < 1.0, more, 0.0).long()
    return set(weak[luck < 1.0].tolist())


def certify_by_structure(
    candidates: Candidates,
    residual: Residual,
    structure: Structure,
    *,
    layer: nn.Linear | None,
    classes: int,
    steady: bool = True,
    trace: float = 0.0,
) -> Verdicts:
    """Test every candidate against the column space of the update; no tail, label or loss needed.

    Args:
        candidates: distinct candidates.
        residual: the residual they were read from.
        structure: the column space of the update.
        layer: the next layer, if the activations enter one directly.
        classes: number of classes; no label is found here.
        steady: every neuron that fires has a sensitivity; with dropout it may have none.
        trace: distance from the space that is accepted although the tracked error does not explain
            it, as a trace of another sample.
    """
    z = candidates.pre_activations
    fires = z > 0
    activations = z * fires
    doubt = z.abs() <= KINK * candidates.error[:, None] * residual.spread
    kinds = Evidence.STRUCTURE
    if layer is not None and residual.has_next:
        v, off = measure_v(candidates, residual, activations, candidates.error)
        unmasked = v @ layer.weight
        kinds |= Evidence.NEXT_LAYER
        whole = torch.ones_like(off, dtype=torch.bool)
    else:
        v = z.new_zeros(len(z), 0 if layer is None else layer.out_features)
        start = torch.zeros_like(z)
        start.scatter_(1, candidates.neurons[:, None], residual.bias[candidates.neurons, None])
        unmasked, distance, equations = structure.sharpen(start, fires | doubt)
        own = unmasked.gather(1, candidates.neurons[:, None])
        scale = residual.bias[candidates.neurons, None] / torch.where(own == 0, 1.0, own)
        unmasked = unmasked * scale
        off = distance
        # What was found may be another sample that fires at some of these neurons only.
        strong = unmasked.abs() > _PART * typical(unmasked)[:, None]
        firm = fires & ~doubt & (residual.sent.row_error > 0)
        share = (strong & firm).sum(1) / firm.sum(1).clamp(min=1)
        several = torch.bincount(candidates.pairs[0], minlength=len(z)) > 1
        whole = several & (share >= (_WHOLE if steady else _PRESENT))
    c = unmasked * fires
    row, column = candidates.pairs
    size = torch.maximum(typical(c)[row], residual.bias[column].abs())
    gap = (c[row, column] - residual.bias[column]).abs()
    none = torch.zeros_like(off)
    gaps = none.scatter_reduce(0, row, gap / size, "amax")
    fits = gap <= SLACK * (residual.bias_error[column] + off[row] * size)
    fits_all = none.scatter_reduce(0, row, (~fits).double(), "amax") == 0
    whole &= fits_all & ~trespassers(residual, unmasked * (fires & ~doubt))
    if layer is not None and residual.has_next:
        # The space takes a while to find: ask only where an answer is needed.
        distance, equations = none + 1.0, none.clone()
        distance[whole], equations[whole] = structure.distance(c[whole])
    explained = distance <= SLACK * (off + candidates.error + residual.resolution)
    explained |= distance <= min(trace, LARGEST)
    explained &= whole
    chance = structure.chance(distance, equations)
    # A trace of another sample shows as a distance from the space.
    error = torch.maximum(candidates.error, torch.where(distance <= LARGEST, distance, 0.0))
    mismatch = torch.maximum(distance, gaps)
    sound = explained & (mismatch <= LOOSEST) & (error <= EXACT)
    accepted = sound & (chance <= CHANCE)
    return Verdicts(
        accepted=accepted,
        sound=sound,
        vague=explained & ~accepted,
        groups=torch.zeros_like(accepted),
        radius=none,
        mismatch=mismatch,
        chance=chance,
        equations=equations.long(),
        evidence=(kinds,) * len(candidates),
        peeled=Peeled(
            coordinates=candidates.coordinates,
            activations=activations,
            sensitivities=measure_c(candidates, residual, c, typical(c) * off),
            next_sensitivities=v,
            counts=c.new_zeros(len(c), classes),
            sample_error=error,
            sensitivity_error=torch.maximum(off, residual.resolution + none),
            kink=unmasked * doubt,
            told=torch.zeros_like(c),
        ),
    )


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


def _bias_equation(
    candidates: Candidates, residual: Residual, c: Tensor, usual: Tensor, allowed: Tensor
) -> tuple[_Test, Tensor]:
    """The bias equation at every neuron that isolates a candidate (paper, eq. cert).

    Mismatches are relative to the typical sensitivity of the candidate, not to the one at hand:
    that may be small by cancellation, and its error is not.

    Returns the test, with the chance of its worst equation, and (n,) the chance of all others.
    """
    row, column = candidates.pairs
    observed = residual.bias[column]
    size = torch.maximum(usual[row], observed.abs())
    gap = (c[row, column] - observed).abs()
    error = residual.bias_error[column] + allowed[row] * size
    luck = (2 * gap / size).clamp(min=residual.resolution, max=1.0).log()
    none = torch.zeros_like(allowed)
    worst = (none - torch.inf).scatter_reduce(0, row, luck, "amax")
    test = _Test(
        none.scatter_reduce(0, row, gap / error, "amax"),
        none.scatter_reduce(0, row, gap / size, "amax"),
        worst.exp(),
        torch.bincount(row, minlength=len(candidates)),
    )
    return test, (none.scatter_add(0, row, luck) - worst).exp()


def next_layer(  # noqa: PLR0917 -- all of them belong to each candidate
    neurons: Tensor, error: Tensor, residual: Residual, own: Tensor, v: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """The next layer's residual at a candidate's neuron is a_j v: how far is it off?

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
    # Another sample in the mix would have a typical activation, not this neuron's, maybe tiny, one.
    return gap / off, gap / (size * own[:, 0].clamp(min=residual.spread))


def _next_layer(
    candidates: Candidates, residual: Residual, activations: Tensor, v: Tensor, allowed: Tensor
) -> _Test:
    """The test by the next layer, an equation for each entry."""
    neurons = candidates.neurons
    own = activations.gather(1, neurons[:, None])
    units, mismatch = next_layer(neurons, candidates.error, residual, own, v, allowed)
    predicted = own * v
    gap = (residual.next_rows[neurons] - predicted).abs().amax(1)
    luck = _luck(predicted.abs(), torch.maximum(gap, residual.resolution * predicted.abs().amax(1)))
    return _Test(units, mismatch, luck.prod(1), (luck < 1.0).sum(1))


def _luck(entries: Tensor, gap: Tensor) -> Tensor:
    """(n, width - 2) chance of each entry of a loss gradient to match within a gap (n,) by luck.

    Entries below the gap match anyhow and prove nothing: a saturated sample has only two that
    count. Of the largest two, one follows from the others (before a softmax they sum to zero) and
    one from the bias equation.
    """
    telling = entries.sort(dim=1, descending=True).values[:, 2:]
    return (2 * gap[:, None] / telling).clamp(max=1.0)
