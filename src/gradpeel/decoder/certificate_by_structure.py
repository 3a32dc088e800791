"""Certificates of what cannot be simulated: by the structure of the update alone.

The guarantees are those of `gradpeel.decoder.certificate`. Where tail, labels or loss are not
known, and after several local steps, the evidence is where a sample's sensitivities lie, and where
they are zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.certificate import Verdicts
from gradpeel.decoder.evidence.parallel import are_parallel, is_pinned
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import Evidence
from gradpeel.decoder.residual import Firing, Residual
from gradpeel.decoder.sample_block import SampleBlock, typical
from gradpeel.decoder.sensitivities import measure_c, measure_v, trespassers

__all__ = ["certify_by_structure", "certify_by_support"]


def certify_by_structure(
    candidates: Candidates,
    residual: Residual,
    structure: Structure,
    *,
    layer: nn.Linear | None,
    classes: int,
    known: Tensor,
    weighed: bool,
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
        known: (m, neurons) sensitivities of the samples that are certified already.
        weighed: the weight of the candidates is also checked against the tail.
        steady: every neuron that fires has a sensitivity; with dropout it may have none.
        trace: distance from the space that is accepted, as a trace of another sample, although the
            tracked error does not explain it.
    """
    z = candidates.pre_activations
    firing = residual.firing(candidates.coordinates, z, candidates.error)
    fires, doubt = firing.fires, firing.doubt
    by_next = layer is not None and residual.has_next
    if layer is not None and by_next:
        found = _by_next_layer(candidates, residual, layer)
    else:
        found = _by_silence(candidates, residual, structure, firing, steady=steady)
        found = replace(found, v=z.new_zeros(len(z), 0 if layer is None else layer.out_features))
    unmasked, off, whole = found.c, found.error, found.whole
    # After several steps what was measured shows where a sample fired in between.
    c = unmasked if residual.of_several_steps else unmasked * fires
    row, column = candidates.pairs
    size = torch.maximum(typical(c)[row], residual.bias[column].abs())
    gap = (c[row, column] - residual.bias[column]).abs()
    none = torch.zeros_like(off)
    gaps = none.scatter_reduce(0, row, gap / size, "amax")
    fits = gap <= LIMITS.slack * (residual.bias_error[column] + off[row] * size)
    fits_all = none.scatter_reduce(0, row, (~fits).double(), "amax") == 0
    whole &= fits_all & ~trespassers(residual, unmasked * (fires & ~doubt))
    distance, equations = found.distance, found.equations
    if by_next:
        # Finding the space takes time: compute it only where it is needed.
        distance[whole], equations[whole] = structure.distance(c[whole])
    explained = distance <= LIMITS.slack * (off + candidates.error + residual.resolution)
    explained |= distance <= min(trace, LIMITS.outside)
    explained &= whole
    chance = structure.chance(distance, equations)
    # A trace of another sample appears as a distance from the space.
    error = torch.maximum(candidates.error, torch.where(distance <= LIMITS.outside, distance, 0.0))
    mismatch = torch.maximum(distance, gaps)
    # Another sample may have added as much as lies outside the space.
    sound = explained & (distance <= LIMITS.most_trace) & (mismatch <= LIMITS.loosest)
    sound &= error <= LIMITS.exact
    if not weighed and bool(sound.any()):
        rows = residual.sent.next_rows if by_next else torch.cat([known, c[whole]])
        if are_parallel(rows[rows.any(1)]):
            sound &= is_pinned(z, residual, structure)
    accepted = sound & (chance <= LIMITS.chance)
    kinds = Evidence.STRUCTURE | (Evidence.NEXT_LAYER if by_next else Evidence(0))
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
        peeled=SampleBlock(
            coordinates=candidates.coordinates,
            activations=z.relu() * fires,
            sensitivities=measure_c(candidates, residual, c, typical(c) * off),
            next_sensitivities=found.v,
            counts=c.new_zeros(len(c), classes),
            sample_error=error,
            sensitivity_error=off.clamp(min=residual.resolution),
            next_error=off.clamp(min=residual.resolution),
            kink=unmasked * doubt,
            told=torch.zeros_like(c),
        ),
    )


def certify_by_support(
    candidates: Candidates,
    residual: Residual,
    rows: Tensor,
    row_error: Tensor,
    who: Tensor,
    *,
    spare: int,
) -> Verdicts:
    """Test whether candidates fire where the rows that they were solved with are not zero.

    After several local steps nothing else is known of a row but where it is zero: the column space
    says so, without the sample. Where the sample is silent at both ends of the training it may have
    fired in between, but rarely; a sample that is another, or a mixture, fires elsewhere.

    Args:
        candidates: the candidates.
        residual: the residual they were read from.
        rows: (m, neurons) all rows.
        row_error: (m,) their relative errors.
        who: (n,) which row each candidate was solved with.
        spare: equations that a row satisfies beyond its unknowns.
    """
    z = candidates.pre_activations
    firing = residual.firing(candidates.coordinates, z, candidates.error)
    there = residual.sent.row_error > 0
    nothing = (LIMITS.slack * (row_error + residual.resolution)).clamp(max=LIMITS.least_part)
    nothing = nothing * typical(rows)
    unlike, certain, silent = firing.unlike(rows, nothing, there)
    own = unlike.gather(1, who[:, None])[:, 0]
    another = unlike.scatter(1, who[:, None], torch.inf).amin(1)
    wrong = own / certain
    sound = (wrong <= LIMITS.hidden_support) & (own <= LIMITS.own_support * another)
    sound &= silent >= LIMITS.row_spare
    row, row_error = rows[who], row_error[who]
    sound &= (candidates.error <= LIMITS.exact) & (row_error <= LIMITS.row_error)
    chance = row_error.clamp(min=residual.resolution, max=1.0) ** min(spare, LIMITS.most_equations)
    chance = chance.clamp(min=LIMITS.least_chance)
    off = row_error + residual.resolution
    none = torch.zeros_like(off)
    accepted = sound & (chance <= LIMITS.chance)
    return Verdicts(
        accepted=accepted,
        sound=sound,
        vague=torch.zeros_like(sound),
        groups=torch.zeros_like(sound),
        radius=none,
        mismatch=wrong,
        chance=chance,
        equations=torch.full_like(candidates.neurons, spare),
        evidence=(Evidence.STRUCTURE | Evidence.ROW,) * len(candidates),
        peeled=SampleBlock(
            coordinates=candidates.coordinates,
            activations=z.relu() * (row.abs() > nothing[who, None]),
            sensitivities=row,
            next_sensitivities=row[:, :0],
            counts=row[:, :0],
            sample_error=candidates.error,
            sensitivity_error=off,
            next_error=off,
            kink=torch.zeros_like(row),
            told=torch.zeros_like(row),
        ),
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Sensitivities of candidates that cannot be simulated.

    Attributes:
        v: (n, next width) at the next layer, where they were measured there.
        c: (n, neurons) also where the candidates are silent.
        error: (n,) their relative error.
        whole: (n,) whether they were found at every neuron that the candidate fires.
        distance: (n,) from the column space of the update; 1 where it has not been computed yet.
        equations: (n,) number of equations behind that distance.
    """

    v: Tensor
    c: Tensor
    error: Tensor
    whole: Tensor
    distance: Tensor
    equations: Tensor


def _by_next_layer(candidates: Candidates, residual: Residual, layer: nn.Linear) -> _Measured:
    """Sensitivities by the next layer's gradient."""
    v, off = measure_v(candidates, residual, candidates.pre_activations.relu(), candidates.error)
    return _Measured(
        v,
        v @ layer.weight,
        off,
        torch.ones_like(off, dtype=torch.bool),
        torch.ones_like(off),
        torch.zeros_like(off),
    )


def _by_silence(
    candidates: Candidates,
    residual: Residual,
    structure: Structure,
    firing: Firing,
    *,
    steady: bool,
) -> _Measured:
    """Sensitivities from the neurons that candidates do not fire, see `Structure.sharpen`."""
    neurons = candidates.neurons[:, None]
    start = torch.zeros_like(candidates.pre_activations)
    start.scatter_(1, neurons, residual.bias[neurons])
    several = torch.bincount(candidates.pairs[0], minlength=len(start)) > 1
    # After several steps each of these takes a while; nobody else can be whole.
    hidden = LIMITS.hidden_firing if residual.of_several_steps else 0.0
    asked = several if hidden else torch.ones_like(several)
    c, distance, equations = start, start.new_full((len(start),), torch.inf), start.sum(1) * 0.0
    found = structure.sharpen(start[asked], (firing.fires | firing.doubt)[asked], hidden=hidden)
    c[asked], distance[asked], equations[asked] = found
    own = c.gather(1, neurons)
    c = c * (residual.bias[neurons] / torch.where(own == 0, 1.0, own))
    # The result may be another sample that fires at only some of these neurons.
    strong = c.abs() > LIMITS.least_part * typical(c)[:, None]
    firm = firing.firm & (residual.sent.row_error > 0)
    share = (strong & firm).sum(1) / firm.sum(1).clamp(min=1)
    needed = LIMITS.firing_share if steady else LIMITS.firing_share_dropout
    whole = several & (share >= min(needed, 1.0 - hidden))
    return _Measured(c[:, :0], c, distance, whole, distance, equations)
