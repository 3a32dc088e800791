"""From rows to samples, and to a residual in which every one of them stands alone.

With all rows known, G = C^T X is a linear system for the samples. The bias gradient, which is what
a feature that is always 1 would have, is one more column of it and tells the factor of each row.

To be certified a sample must be read from a neuron that no other unknown sample fires. With all
others taken out that is every neuron it fires. So a few neurons are given to each sample, and from
each of these everybody else is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.rows.finding import Rows
from gradpeel.decoder.sample_block import SampleBlock, typical

__all__ = ["Isolated", "isolate"]


@dataclass(frozen=True, eq=False)
class Isolated:
    """Samples that rows determine, each alone at some neurons.

    Attributes:
        residual: what is left of the update, without everybody else at those neurons.
        owner: (neurons,) whose each neuron is, by the order of rows; -1 where it is nobody's.
        combinations: (n, neurons) the samples as combinations of what was left of the gradient.
        rows: (n, neurons) their sensitivities, as the space has them.
        row_error: (n,) relative error of these.
    """

    residual: Residual
    owner: Tensor
    combinations: Tensor
    rows: Tensor
    row_error: Tensor

    def combinations_of(self, neurons: Tensor) -> Tensor:
        """(n, neurons) those of the samples that some neurons, (n,), belong to."""
        return self.combinations[self.owner[neurons]]

    def confirms(self, neurons: Tensor, peeled: SampleBlock) -> Tensor:
        """(n,) mask: whose sensitivities are the row that they were read from, at every neuron.

        Rows come from the space alone, sensitivities from the sample: where it fires, what its loss
        sends back. A mixture has neither the firing pattern of a row nor its entries.

        Args:
            neurons: (n,) the neurons that candidates were read from.
            peeled: the candidates.
        """
        who = self.owner[neurons]
        row, c = self.rows[who], peeled.sensitivities
        doubt = peeled.kink != 0
        apart = ((row - c) * ~doubt).norm(dim=1) / row.norm(dim=1)
        off = self.row_error[who] + peeled.sensitivity_error + self.residual.resolution
        agrees: Tensor = apart <= (LIMITS.slack * off).clamp(max=LIMITS.outside)
        return agrees


def isolate(rows: Rows, residual: Residual) -> Isolated | None:
    """Solve for the samples, and take all others out where each is to be read.

    Args:
        rows: the rows of all unknown samples but perhaps some that add next to nothing.
        residual: what is left of the update.

    Returns:
        The samples, or None where the rows do not determine them.
    """
    space = rows.space
    live, error = space.live, space.error
    if not len(rows):
        return None
    known = torch.cat([residual.rows / residual.scale, residual.bias[:, None]], 1)[live]
    orthogonal, upper = torch.linalg.qr(rows.rows.T)
    if float(upper.diagonal().abs().min()) <= torch.finfo(upper.dtype).eps * len(error):
        return None
    solve = torch.linalg.solve_triangular(upper, orthogonal.T, upper=True) / error
    solution = solve @ known
    factor = solution[:, -1:]
    left = rms(known - (rows.rows * error).T @ solution)
    # What is left may be samples without a row, and the errors of those that were peeled.
    most = LIMITS.row_left * float(rms(known).norm()) + float(error.norm())
    if float(left.norm()) > most or bool((factor == 0).any()):
        return None
    # Who has no row is noise to the others.
    noisy = residual.clone()
    noisy.blur(live, left)
    error = noisy.row_error[live]
    combinations = factor.new_zeros(len(rows), len(live))
    combinations[:, live] = solve / factor
    c = torch.zeros_like(combinations)
    c[:, live] = rows.rows * factor * space.error
    # Noise at every neuron, and what the rows themselves are off by.
    off = (1.0 + (rows.error * factor[:, 0]).square().sum() / len(error)).sqrt()
    sample_error = off * (combinations[:, live] * error).norm(dim=1) + residual.resolution
    block = _block(
        residual,
        coordinates=solution[:, :-1] / factor * residual.scale,
        c=c,
        sample_error=sample_error,
        row_error=rows.error,
    )
    owner = _owners(block, noisy)
    c = block.sensitivities
    others = torch.ones_like(c, dtype=torch.bool)
    owned = (owner >= 0).nonzero()[:, 0]
    others[owner[owned], owned] = False
    noisy.subtract(replace(block, sensitivities=c * others, activations=block.activations * others))
    # At all other neurons everybody is taken out: that does not make them silent.
    noisy.quiet = residual.quiet.clone()
    return Isolated(noisy, owner, combinations, c, rows.error)


def _block(
    residual: Residual,
    *,
    coordinates: Tensor,
    c: Tensor,
    sample_error: Tensor,
    row_error: Tensor,
) -> SampleBlock:
    """What subtracting the samples needs."""
    z = residual.pre_activations(coordinates)
    # Where a sample is silent its row is zero up to roundings; if it is not, it is another's.
    fires = z > 0
    c = torch.where(~fires & (c.abs() <= LIMITS.least_part * typical(c)[:, None]), 0.0, c)
    # At the next layer their gradients add up in the same way, a_j v for each.
    v = c.new_zeros(len(c), 0)
    if residual.has_next:
        weight = 1.0 / residual.next_error.clamp(min=torch.finfo(c.dtype).tiny)
        there = (residual.next_error > 0)[:, None] * weight[:, None]
        v = torch.linalg.lstsq(z.relu().T * there, residual.next_rows * there).solution
    off = row_error + residual.resolution
    return SampleBlock(
        coordinates=coordinates,
        activations=z.relu(),
        sensitivities=c,
        next_sensitivities=v,
        counts=c.new_zeros(len(c), 0),
        sample_error=sample_error,
        sensitivity_error=off,
        next_error=off,
        kink=torch.zeros_like(c),
        told=torch.zeros_like(c),
    )


def _owners(block: SampleBlock, residual: Residual) -> Tensor:
    """(neurons,) whose each neuron is: each sample gets the few at which it is clearest."""
    c = block.sensitivities
    error = residual.row_error.square() + block.sample_error.square() @ c.square()
    clear = c.abs() / error.sqrt().clamp(min=torch.finfo(c.dtype).tiny)
    # It must fire there by what it is, too.
    clear = torch.where(block.activations > 0, clear, 0.0)
    owner = torch.full_like(residual.quiet, -1, dtype=torch.long)
    faintest_first = clear.amax(1).argsort().tolist()
    for _ in range(LIMITS.row_neurons):
        for i in faintest_first:
            best = int(torch.where(owner < 0, clear[i], 0.0).argmax())
            if float(clear[i, best]) > 0 and int(owner[best]) < 0:
                owner[best] = i
    return owner
