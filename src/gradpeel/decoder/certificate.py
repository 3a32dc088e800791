"""The certificate: evidence, without ground truth, that a candidate is a real sample.

A neuron that a single unrecovered sample fires yields that sample; any other live neuron yields a
mixture (paper, section "Certification"). The published rule is one scalar equation with an absolute
tolerance, which is wrong in both directions. Here every comparison is relative to a tracked error,
and evidence counts only as far as it distinguishes a sample from a mixture of samples that share
its label and fire alike: with a nearly linear tail such a mixture satisfies all equations of the
next layer. But it does not have the weight of one sample.

Formal guarantees for an accepted candidate that was read from neuron j:

- Firing. It fires at j.
- Weight. With its label it has the weight of one sample, at *every* examined neuron that yields the
  same vector, within `slack` times the tracked error there. The weight of one sample is learned
  from the update itself, from candidates that cannot be groups (see `gradpeel.decoder.share`); a
  stated batch size is not evidence for it. It can be evidence against: where one sample weighs as
  much as m of a batch of that size, every one of them must be m copies, as below.
- Groups. With m times that weight it is m copies of one sample: members of a group would be no
  farther than `copies` from it (see `gradpeel.decoder.evidence.groups`). Otherwise it is not
  accepted, but reported as a group.
- Next layer. Where the tail begins with a Linear whose gradient was sent too, it predicts that
  layer's whole residual at j, one equation per output, within `slack` times their tracked error.
- Support. It has no sensitivity above the error at a neuron whose residual is already zero.
- Enough evidence. The product of the relative mismatches of all equations that count, times the
  number of labels tried, is at most `chance`. Entries too small to distinguish anything do not
  count, further neurons count only as far as loss gradients can be distinguished, and all equations
  count only as far as the loss gradient responds to the candidate. Where that is not enough, its
  sensitivities must lie in the column space of the update (see
  `gradpeel.decoder.evidence.structure`). This is a score with a threshold, not a probability.
- Structure. Where tail, labels or loss are not known, its sensitivities lie in the column space of
  the update, at less than `outside` of the distance of random ones, in enough equations. Where all
  loss gradients are parallel, it also cannot deviate by `exact` without firing other neurons (see
  `gradpeel.decoder.evidence.parallel`).
- Row. Where no neuron isolates it, all other samples are subtracted at its neurons, and its own
  sensitivities equal, at every neuron, the row from which it was read (see
  `gradpeel.decoder.rows`). That counts as evidence, one equation per neuron beyond the unknowns of
  a row. The other equations must then distinguish one sample from several, by `loosest_of_row`.
  After several local steps its row must be the one that its own firing pattern determines, and so
  must be the rows of all other samples that were solved for together with it.
- Exactness. Its error, corrected by how well the equations hold, is at most `exact`.
- Relativity. Multiplying the whole update by a constant changes no verdict, unless a batch size is
  stated and the result weighs m times as much as that says.

Assumptions. At least one of the samples read occurs in the batch only once, or the true batch size
is stated, or the update is so exact that no two samples pass for one. Two samples differ in a way
that the layer can see: a difference orthogonal to all its weights leaves no trace in any
update. Where the tail is unknown, no two samples fire exactly the same neurons.

When a cascade has stalled, the last examination is not strict: mismatches up to half the digits of
the update are then accepted too, as a trace of a sample with almost no gradient; everything else
still holds. If that finds nothing, one candidate at a time may be subtracted on trial if its
evidence falls short of `chance` but not of `speculative`: it is kept only if the samples that
follow from it make up for that (see `gradpeel.decoder.known.KnownSamples.followers`). The loop adds
four guarantees: no sample is accepted twice, none outside a declared data range, none whose numbers
differ from those it was certified by, and none by its structure that fires exactly the same neurons
as another that was certified or that several neurons yield. There is no promise that a sample which
is not recovered is safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.evidence.equations import Equations, tail_equations
from gradpeel.decoder.evidence.groups import radius_of_groups
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sample_block import SampleBlock, typical
from gradpeel.decoder.sensitivities import measure_c, measure_v, trespassers
from gradpeel.decoder.simulate import Backward, Simulated

__all__ = ["Verdicts", "certify_by_row", "certify_by_tail"]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What the certificate states about each candidate.

    Attributes:
        accepted: (n,) mask.
        sound: (n,) mask of those that satisfy everything except the weight of their evidence.
        vague: (n,) mask of those that are rejected only because of their own error.
        groups: (n,) mask of those that weigh as much as several samples, which may differ.
        radius: (n,) how far the members of such a group may be from their mean, relative to the
            typical size of a sample; 0 for a single sample.
        mismatch: (n,) worst relative mismatch over all equations.
        chance: (n,) joint precision of the equations that count: a score.
        equations: (n,) number of equations that count.
        evidence: the kinds of evidence of each.
        peeled: what is needed to subtract each candidate.
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
    peeled: SampleBlock

    def pick(self, mask: Tensor) -> Verdicts:
        """The verdicts on some of the candidates."""
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
    between: float,
    strict: bool = True,
    counts: Tensor | None = None,
    glanced: Simulated | None = None,
    loosest: float = LIMITS.loosest,
    weighs: int = 1,
) -> Verdicts:
    """Simulate every candidate and test it against the residual.

    Args:
        candidates: distinct candidates.
        residual: the residual they were read from.
        backward: the client's backward pass behind the target.
        structure: the column space of the update, used where the equations alone prove too little.
        between: distance between samples, relative to the size of one.
        strict: require that the tracked error explains every mismatch. Otherwise half the digits of
            the update are enough: a sample with a trace of another that has almost no gradient.
        counts: (n, classes) copies with each label; by default one label is fitted to each.
        glanced: what a first look at the candidates has simulated, if there was one.
        loosest: largest relative mismatch of any equation, however large the tracked error.
        weighs: how many samples of a batch of the stated size weigh as much as one of this update.
    """
    z = candidates.pre_activations
    fires = z > 0
    activations = z * fires
    # The label is fitted to the bias; the gradient at the logits shows it too, if it was sent.
    tried = 1 if residual.has_next and backward.ends_at_next_layer else backward.classes
    if counts is not None:
        tried = LIMITS.copies_tried * backward.classes
        glanced = backward.simulate(activations, counts)
    elif glanced is None:
        glanced = backward.glance(activations, candidates.neurons, residual.bias)
    simulated = backward.finish(glanced)
    allowed = backward.error(simulated, candidates.error + residual.resolution, residual.resolution)
    found = tail_equations(candidates, residual, backward, simulated, allowed)
    # The equations also measure the error: their mismatch, in units of the tracked error, corrects
    # it, so that neither pessimism nor a trace of another sample accumulates unnoticed.
    correction = (2 * found.units).clamp(min=0.25)
    error = candidates.error * correction + residual.resolution
    block = _block(candidates, residual, backward, simulated, error=error, off=allowed * correction)
    c = simulated.c * fires
    explained = found.units <= LIMITS.slack
    if not strict:
        explained |= found.mismatch <= math.sqrt(residual.grain)
    doubt = z.abs() <= LIMITS.kink * error[:, None] * residual.spread
    explained &= ~trespassers(residual, c * ~doubt)
    sound = explained & (found.mismatch <= loosest) & (error <= LIMITS.exact)
    # Something that weighs as much as several samples is copies of one only if they cannot differ.
    several = sound & (weighs * simulated.counts.sum(1) > 1)
    radius = torch.zeros_like(error)
    if bool(several.any()):
        radius[several] = radius_of_groups(
            candidates.pick(several),
            residual,
            backward,
            structure,
            between=between,
            counts=simulated.counts[several],
        ).each
    alone = radius <= min(LIMITS.copies, LIMITS.apart * between)
    chance, equations, helped = _ask_structure(structure, c, sound, tried, found)
    proven = chance <= LIMITS.chance
    kinds = Evidence.BIAS | (Evidence.NEXT_LAYER if residual.has_next else Evidence(0))
    return Verdicts(
        accepted=sound & proven & alone,
        sound=sound & alone,
        vague=explained & ~(sound & proven),
        groups=sound & proven & ~alone,
        radius=radius,
        mismatch=found.mismatch,
        chance=chance,
        equations=equations,
        evidence=tuple(kinds | Evidence.STRUCTURE if more else kinds for more in helped.tolist()),
        peeled=block,
    )


def certify_by_row(
    verdicts: Verdicts, apart: Tensor, agrees: Tensor, *, spare: int, weighed: bool
) -> Verdicts:
    """Count the rows that candidates were solved with as evidence for them, or against them.

    Args:
        verdicts: what the tail or the structure says of the candidates.
        apart: (n,) relative distance between each candidate's sensitivities and its row.
        agrees: (n,) mask of those for which that is within the errors of the two.
        spare: equations that a row satisfies beyond its unknowns.
        weighed: the tail has weighed the candidates. Otherwise the structure has judged them, which
            is what makes a row, and a row is no further evidence.
    """
    accepted, chance, equations = verdicts.accepted, verdicts.chance, verdicts.equations
    if weighed:
        luck = apart.clamp(max=1.0) ** min(spare, LIMITS.most_equations)
        chance = (chance * luck).clamp(min=LIMITS.least_chance)
        accepted = verdicts.sound & (chance <= LIMITS.chance)
        equations = equations + spare
    return replace(
        verdicts,
        accepted=accepted & agrees,
        chance=chance,
        equations=equations,
        evidence=tuple(kinds | Evidence.ROW for kinds in verdicts.evidence),
    )


def _block(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    simulated: Simulated,
    *,
    error: Tensor,
    off: Tensor,
) -> SampleBlock:
    """What subtracting simulated candidates needs, measured where that is more exact.

    Args:
        candidates: the candidates.
        residual: the residual they were read from.
        backward: the client's backward pass behind the target.
        simulated: the candidates with their labels.
        error: (n,) relative error of the candidates.
        off: (n,) relative error of what is simulated.
    """
    z = candidates.pre_activations
    fires = z > 0
    usual = typical(simulated.c * fires)
    v, unmasked = simulated.v, simulated.c
    layer = backward.tail.next_layer
    if layer is not None and residual.has_next:
        measured, measured_off = measure_v(candidates, residual, z * fires, error)
        better = measured_off < off
        v = torch.where(better[:, None], measured, v)
        off = torch.where(better, measured_off, off)
        unmasked = v @ layer.weight
    doubt = z.abs() <= LIMITS.kink * error[:, None] * residual.spread
    return SampleBlock(
        coordinates=candidates.coordinates,
        activations=z * fires,
        sensitivities=measure_c(candidates, residual, unmasked * fires, usual * off),
        next_sensitivities=v,
        counts=simulated.counts,
        sample_error=error,
        sensitivity_error=off,
        next_error=off,
        kink=unmasked * doubt,
        told=torch.zeros_like(z),
    )


def _ask_structure(
    structure: Structure, c: Tensor, sound: Tensor, tried: int, found: Equations
) -> tuple[Tensor, Tensor, Tensor]:
    """Use the structure for candidates with too little evidence.

    Args:
        structure: the column space of the update.
        c: (n, neurons) sensitivities.
        sound: (n,) mask of candidates that satisfy everything except the weight of their evidence.
        tried: number of labels, or of copies with them, that were tried for each.
        found: what the equations of the tail show.

    Returns:
        (n,) the chance of all evidence together, (n,) the number of equations, and (n,) the
        candidates that the structure supports.
    """
    chance, equations = tried * found.chance, found.equations
    helped = torch.zeros_like(sound)
    weak = (sound & (chance > LIMITS.chance)).nonzero()[:, 0]
    if len(weak):
        distance, more = structure.distance(c[weak])
        luck = structure.chance(distance, more)
        chance[weak] *= luck
        equations = equations.index_add(0, weak, torch.where(luck < 1.0, more, 0.0).long())
        helped[weak] = luck < 1.0
    return chance, equations, helped
