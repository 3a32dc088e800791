"""A residual in which every sample that was solved for stands alone.

To be certified a sample must be read from a neuron that no other unknown sample fires. Without all
others that is every neuron it fires. So a few neurons are given to each sample, and at these the
residual holds what the solution of the whole system leaves for it there. A sample whose gradient
is so small that every single neuron loses it in roundings is still exact in that solution, which
averages over all neurons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.solving import Solution
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.decoder.sample_block import SampleBlock, typical

__all__ = ["Isolated", "isolate"]


@dataclass(frozen=True, eq=False)
class Isolated:
    """Samples that rows determine, each alone at some neurons.

    Attributes:
        residual: what is left of the update, without everybody else at those neurons.
        owner: (neurons,) whose each neuron is, by the order of rows; -1 where it is nobody's.
        samples: the samples; their sensitivities are the rows, as the space has them.
        row_error: (n,) relative error of the rows.
        combinations: (n, neurons) the samples as combinations of what was left of the gradient.
        spare: equations that a row satisfies beyond its unknowns.
    """

    residual: Residual
    owner: Tensor
    samples: SampleBlock
    row_error: Tensor
    combinations: Tensor
    spare: int

    def compare(self, neurons: Tensor, peeled: SampleBlock) -> tuple[Tensor, Tensor]:
        """Compare the sensitivities of candidates with the rows that they were solved with.

        Rows come from the space alone, sensitivities from the sample: where it fires, what its loss
        sends back. A mixture has neither the firing pattern of a row nor its entries.

        Args:
            neurons: (n,) the neurons that candidates were read from.
            peeled: the candidates.

        Returns:
            (n,) their relative distances, and (n,) mask of those that agree at every neuron.
        """
        who = self.owner[neurons]
        row, c = self.samples.sensitivities[who], peeled.sensitivities
        doubt = peeled.kink != 0
        apart = ((row - c) * ~doubt).norm(dim=1) / row.norm(dim=1)
        off = self.row_error[who] + peeled.sensitivity_error + self.residual.resolution
        return apart, apart <= (LIMITS.slack * off).clamp(max=LIMITS.outside)


def isolate(found: Solution, space: RowSpace, residual: Residual, *, width: int) -> Isolated:
    """Give each sample some neurons at which it is alone.

    Args:
        found: the samples.
        space: the space that their rows were found in.
        residual: what is left of the update.
        width: of the next layer, 0 where there is none.
    """

    def everywhere(part: Tensor) -> Tensor:
        whole = part.new_zeros(len(part), len(space.live))
        whole[:, space.live] = part
        return whole

    block = _block(found, everywhere(found.rows), residual)
    owner = _owners(block)
    return Isolated(
        residual=_alone(residual, block, owner),
        owner=owner,
        samples=block,
        row_error=found.row_error,
        combinations=everywhere(found.combinations),
        spare=max(0, len(space.unit) - space.rank - width),
    )


def _block(found: Solution, c: Tensor, residual: Residual) -> SampleBlock:
    """The samples with their sensitivities, (n, neurons), as certified ones are kept."""
    z = residual.pre_activations(found.samples)
    # Where a sample is silent its row is zero up to roundings; if it is not, it is another's.
    fires = residual.firing(found.samples, z, found.sample_error).fires
    c = torch.where(~fires & (c.abs() <= LIMITS.least_part * typical(c)[:, None]), 0.0, c)
    # At the next layer their gradients add up in the same way, a_j v for each.
    v, next_error = c.new_zeros(len(c), 0), torch.zeros_like(found.row_error)
    if residual.has_next:
        v, next_error = _at_next_layer(residual, z.relu())
    return SampleBlock(
        coordinates=found.samples,
        activations=z.relu(),
        sensitivities=c,
        next_sensitivities=v,
        counts=c.new_zeros(len(c), 0),
        sample_error=found.sample_error,
        sensitivity_error=found.row_error + found.sample_error + residual.resolution,
        next_error=next_error + found.sample_error,
        kink=torch.zeros_like(c),
        told=torch.zeros_like(c),
    )


def _at_next_layer(residual: Residual, activations: Tensor) -> tuple[Tensor, Tensor]:
    """Solve for the loss gradients at the next layer, which add up there as a_j v.

    Args:
        residual: what is left of the update.
        activations: (n, neurons) of all samples.

    Returns:
        (n, next width) v, and (n,) their relative errors.
    """
    tiny = torch.finfo(activations.dtype).tiny
    known = residual.next_error > 0
    weight = 1.0 / residual.next_error[known].clamp(min=tiny)
    orthogonal, upper = torch.linalg.qr((activations[:, known] * weight).T)
    there = residual.next_rows[known] * weight[:, None]
    # Samples that fire alike cannot be distinguished here.
    upper.diagonal().copy_(torch.where(upper.diagonal() == 0, tiny, upper.diagonal()))
    inverse = torch.linalg.solve_triangular(
        upper, torch.eye(len(upper), dtype=upper.dtype, device=upper.device), upper=True
    )
    v = torch.nan_to_num(inverse @ (orthogonal.T @ there))
    left = there - (activations[:, known] * weight).T @ v
    # Errors of the samples count here as well, and show in what is left.
    noise = max(1.0, float(left.norm()) / math.sqrt(max(left.numel(), 1)))
    size = v.abs().amax(1).clamp(min=tiny)
    return v, torch.nan_to_num(noise * inverse.norm(dim=1) / size, posinf=1.0)


def _owners(block: SampleBlock) -> Tensor:
    """(neurons,) whose each neuron is: each sample gets the few at which it is largest."""
    c = block.sensitivities
    # It must fire there by what it is, too.
    clear = torch.where(block.activations > 0, c.abs(), 0.0) / typical(c)[:, None]
    owner = torch.full((c.shape[1],), -1, dtype=torch.long, device=c.device)
    for _ in range(LIMITS.row_neurons):
        for i in range(len(c)):
            best = int(torch.where(owner < 0, clear[i], 0.0).argmax())
            if float(clear[i, best]) > 0 and int(owner[best]) < 0:
                owner[best] = i
    return owner


def _alone(residual: Residual, block: SampleBlock, owner: Tensor) -> Residual:
    """The residual with nothing but its owner at each neuron that has one.

    Args:
        residual: what is left of the update.
        block: the samples.
        owner: (neurons,) whose each neuron is.
    """
    alone = residual.clone()
    where = (owner >= 0).nonzero()[:, 0]
    who = owner[where]
    c, a = block.sensitivities[who, where], block.activations[who, where]
    alone.rows[where] = c[:, None] * block.coordinates[who]
    alone.bias[where] = c
    alone.row_error[where] = c.abs() * block.sample_error[who]
    alone.bias_error[where] = (typical(block.sensitivities) * block.sensitivity_error)[who]
    if residual.has_next:
        v = block.next_sensitivities[who]
        alone.next_rows[where] = a[:, None] * v
        alone.next_error[where] = a * v.abs().amax(1) * block.next_error[who]
    return alone
