"""Refinement: fit all certified samples together to the update as it was sent.

Errors accumulate along the cascade: a late sample is read from what is left after many
subtractions. But once samples are known, every neuron that only they fire is an equation about
them,

    sum_i c_ij x_i = what was sent at neuron j,

and there are far more such neurons than were used to find the samples. Least squares over all of
them, each weighted by its own error, restores the samples to the resolution of the update;
simulating them again does the same for their sensitivities, in turns. Then fainter samples become
visible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.least_squares import Fit, fit_equations
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian
from gradpeel.decoder.residual import Residual, Sent, rms
from gradpeel.decoder.sample_block import SampleBlock, typical
from gradpeel.decoder.simulate import Backward

__all__ = ["Refined", "refine"]


@dataclass(frozen=True, eq=False)
class Refined:
    """Refined samples, and how to get them in any coordinates.

    Attributes:
        peeled: all samples, refined where that gained something.
        better: (n,) which of them come from the joint fit.
        confirmations: (n,) surplus neurons that each sample helps to explain.
        fit: the joint fit.
        bias_error: (neurons,) error of the residual bias once these samples are subtracted.
        row_error: (neurons,) the same for the residual rows.
    """

    peeled: SampleBlock
    better: Tensor
    confirmations: Tensor
    fit: Fit
    bias_error: Tensor
    row_error: Tensor


def refine(
    read: SampleBlock,
    sources: Tensor,
    residual: Residual,
    *,
    backward: Backward | None,
    layer: nn.Linear | None,
    structure: Structure,
) -> Refined | None:
    """Fit all certified samples jointly to the neurons they explain.

    Args:
        read: the certified samples as the cascade read them.
        sources: (n,) the neurons they were read from.
        residual: the residual without them.
        backward: the client's backward pass, where it can be simulated.
        layer: the next layer, if the activations enter one directly.
        structure: the column space of the update, which makes sensitivities exact.

    Returns:
        The refined samples, or None where the explained neurons do not determine them.
    """
    settled = _settled(read, sources, residual, computed=backward is not None)
    sent = residual.sent
    known = torch.cat([sent.rows / residual.scale, sent.bias[:, None]], 1)
    mix = gaussian(known.shape[1], LIMITS.fit_sketch, like=known)
    sketch = known @ mix / known.shape[1] ** 0.5
    # Errors of samples that are not simulated are known less well.
    apart = LIMITS.nothing if backward is None else LIMITS.holds
    peeled, doubt = read, residual.row_error
    for _ in range(LIMITS.refine_steps):
        peeled, loose = _sense(
            peeled,
            read=read,
            residual=residual,
            settled=settled,
            backward=backward,
            layer=layer,
            structure=structure,
        )
        if (found := _fit(peeled, sent, sketch, settled, doubt)) is None:
            return None
        fit = found
        solution = fit.solve(known)
        coordinates = solution[:, :-1] / solution[:, -1:] * residual.scale
        error = LIMITS.honest * fit.error / solution[:, -1].abs() + residual.resolution
        # A fit that is more exact must still agree with what was read.
        moved = rms(coordinates - read.coordinates) / residual.scale
        better = (error < read.sample_error) & (moved <= apart * read.sample_error)
        shift = rms(coordinates - peeled.coordinates) / residual.scale
        before = float(peeled.sample_error.norm())
        peeled = replace(
            peeled,
            coordinates=torch.where(better[:, None], coordinates, read.coordinates),
            sample_error=torch.where(better, error, read.sample_error),
        )
        doubt = fit.gaps
        # Measured sensitivities improve from turn to turn although no error shows it.
        gains = backward is None or float(peeled.sample_error.norm()) < before
        if not (gains and bool((better & (shift > 0.3 * error)).any())):
            break
    # Keep the sensitivities that the samples were fitted with: errors of the two compensate each
    # other. Where they were known up to a factor, the fit has found it.
    loose &= better
    c = peeled.sensitivities * torch.where(loose[:, None], solution[:, -1:], 1.0)
    peeled = replace(
        peeled,
        activations=residual.pre_activations(peeled.coordinates).relu() * (c != 0),
        sensitivities=c,
    )
    bias_error, row_error = _errors(peeled, sent, fit, better, loose)
    stands_out = c.abs() > LIMITS.stands_out * row_error
    off = torch.maximum(peeled.sensitivity_error, error)
    off = torch.where(loose, off, peeled.sensitivity_error)
    return Refined(
        peeled=replace(peeled, sensitivity_error=off),
        better=better,
        confirmations=(stands_out & fit.surplus).sum(1),
        fit=fit,
        bias_error=bias_error,
        row_error=row_error,
    )


def _settled(read: SampleBlock, sources: Tensor, residual: Residual, *, computed: bool) -> Tensor:
    """(neurons,) which neurons only known samples fire.

    Args:
        read: the certified samples.
        sources: (n,) the neurons they were read from.
        residual: the residual without them.
        computed: their sensitivities can be computed.
    """
    left = torch.maximum(residual.bias.abs(), rms(residual.rows) / residual.scale)
    settled = left <= LIMITS.nothing * residual.row_error
    # A sample that no such neuron determines is determined where it was read; and where nothing can
    # be computed, only what was measured there is available.
    lost = ~(read.sensitivities[:, settled] != 0).any(1)
    if not computed or int(settled.sum()) < len(read):
        lost[:] = True
    settled[sources[lost]] = True
    return settled


def _fit(
    peeled: SampleBlock, sent: Sent, sketch: Tensor, settled: Tensor, doubt: Tensor
) -> Fit | None:
    """Fit samples to what was sent at the settled neurons; None where these are too few."""
    fires = peeled.sensitivities != 0
    sigma = (sent.row_error.square() + _spread(peeled) + peeled.kink.square().sum(0)).sqrt()
    explained = settled & fires.any(0) & (sigma > 0)
    if int(explained.sum()) < len(peeled) or not bool(fires[:, explained].any(1).all()):
        return None
    return fit_equations(peeled.sensitivities, sketch, sigma, explained, doubt=doubt)


def _spread(peeled: SampleBlock) -> Tensor:
    """(neurons,) squared error of what samples add together, from that of their sensitivities."""
    c = peeled.sensitivities
    off = (c != 0) * (typical(c) * peeled.sensitivity_error)[:, None]
    return off.square().sum(0)


def _errors(
    peeled: SampleBlock, sent: Sent, fit: Fit, better: Tensor, loose: Tensor
) -> tuple[Tensor, Tensor]:
    """(neurons,) errors of the residual bias, and of its rows, without fitted samples.

    Args:
        peeled: the samples.
        sent: the update as it was sent.
        fit: the joint fit.
        better: (n,) which samples come from it.
        loose: (n,) which samples' sensitivities got a factor from it.
    """
    c = peeled.sensitivities
    # The mismatches at explained neurons measure the errors of all of them.
    unit = min(1.0, LIMITS.residual_slack * fit.unit)
    factor = LIMITS.residual_slack * fit.error_of(torch.where(loose[:, None], c, 0.0))
    bias_square = unit**2 * (sent.bias_error.square() + _spread(peeled))
    bias_square += peeled.kink.square().sum(0) + factor.square()
    alone = (c * torch.where(better, 0.0, peeled.sample_error)[:, None]).square().sum(0)
    joint = LIMITS.residual_slack * fit.error_of(torch.where(better[:, None], c, 0.0))
    return bias_square.sqrt(), (bias_square + alone + joint.square()).sqrt()


def _sense(
    peeled: SampleBlock,
    *,
    read: SampleBlock,
    residual: Residual,
    settled: Tensor,
    backward: Backward | None,
    layer: nn.Linear | None,
    structure: Structure,
) -> tuple[SampleBlock, Tensor]:
    """The samples with sensitivities from the most exact source available.

    Also (n,) which of these are known up to a factor only.
    """
    z = residual.pre_activations(peeled.coordinates)
    fires, doubt, _ = residual.firing(peeled.coordinates, z, peeled.sample_error)
    told = doubt & (peeled.told != 0)
    fires = torch.where(told, peeled.told > 0, fires)
    best = replace(
        peeled,
        activations=z.relu() * fires,
        sensitivities=read.sensitivities,
        next_sensitivities=read.next_sensitivities,
        sensitivity_error=read.sensitivity_error,
        next_error=read.next_error,
    )
    # What samples would add where they are silent; at a kink this part is uncertain.
    silent = typical(best.sensitivities)[:, None].expand_as(z)
    known = (peeled.counts.sum(1) > 0).nonzero()[:, 0]
    if backward is not None and len(known):
        simulated = backward.simulate(best.activations[known], peeled.counts[known])
        off = backward.error(simulated, peeled.sample_error[known], residual.resolution)
        best = _better(best, known, simulated.c * fires[known], simulated.v, off)
        silent = silent.index_copy(0, known, simulated.c)
    unknown = (peeled.sample_error >= 0).nonzero()[:, 0]
    if backward is not None:
        unknown = (peeled.counts.sum(1) == 0).nonzero()[:, 0]
    if layer is not None and residual.has_next and len(unknown):
        v, off = _measure_jointly(best, residual, settled)
        c = v[unknown] @ layer.weight
        best = _better(best, unknown, c * fires[unknown], v[unknown], off[unknown])
        silent = silent.index_copy(0, unknown, c)
    enough = LIMITS.sharp * residual.resolution
    if backward is not None:
        enough = max(enough, LIMITS.sharp_computed)
    vague = (best.sensitivity_error > enough).nonzero()[:, 0]
    computed = best.sensitivity_error
    if len(vague):
        sharp, off, _ = structure.sharpen(best.sensitivities[vague], fires[vague])
        best = _better(best, vague, sharp, None, off)
    # A sensitivity that was read as zero stays zero until a better one is found, whatever z is.
    kink = torch.where(best.sensitivities != 0, best.sensitivities, silent) * (doubt & ~told)
    return replace(best, kink=kink), best.sensitivity_error < computed


def _measure_jointly(
    peeled: SampleBlock, residual: Residual, settled: Tensor
) -> tuple[Tensor, Tensor]:
    """Measure v of all samples together by the next layer's gradient; also their errors."""
    a, sent = peeled.activations, residual.sent
    size = peeled.next_sensitivities.abs().amax(1)
    blur = (a > 0) * (peeled.sample_error * size)[:, None] * residual.spread
    sigma = (sent.next_error.square() + blur.square().sum(0)).sqrt()
    explained = settled & (a > 0).any(0) & (sigma > 0)
    if int(explained.sum()) < len(a) or not bool((a > 0)[:, explained].any(1).all()):
        return peeled.next_sensitivities, torch.full_like(size, torch.inf)
    fit = fit_equations(a, sent.next_rows, sigma, explained, doubt=rms(residual.next_rows))
    v = fit.solve(sent.next_rows)
    tiny = torch.finfo(size.dtype).tiny
    return v, LIMITS.honest * fit.error / v.abs().amax(1).clamp(min=tiny)


def _better(
    peeled: SampleBlock, which: Tensor, c: Tensor, v: Tensor | None, error: Tensor
) -> SampleBlock:
    """Replace the sensitivities of some samples by others that are more exact.

    The two must agree within the errors of the previous ones.
    """
    known, before = peeled.sensitivities[which], peeled.sensitivity_error[which]
    apart = (c - known).norm(dim=1) / known.norm(dim=1)
    agrees = apart <= LIMITS.slack * before
    gains = agrees & (error < before)
    if v is not None:
        nearer = agrees & (error < peeled.next_error[which])
        there = which[nearer]
        peeled = replace(
            peeled,
            next_sensitivities=peeled.next_sensitivities.index_copy(0, there, v[nearer]),
            next_error=peeled.next_error.index_copy(0, there, error[nearer]),
        )
    there = which[gains]
    return replace(
        peeled,
        sensitivities=peeled.sensitivities.index_copy(0, there, c[gains]),
        sensitivity_error=peeled.sensitivity_error.index_copy(0, there, error[gains]),
    )
