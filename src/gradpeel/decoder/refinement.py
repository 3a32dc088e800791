"""Refinement: all certified samples together, against the update as it was sent.

Along the cascade errors pile up: a late sample is read from what is left after many subtractions.
But once samples are known, every neuron that only they fire is an equation about them,

    sum_i c_ij x_i = what was sent at neuron j,

and there are far more such neurons than were used to find the samples. Least squares over all of
them, each weighted by its own error, puts the samples back to the resolution of the update;
simulating them anew does the same for their sensitivities. Then fainter samples come into sight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.peeled import Peeled
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulation import Probe, simulate
from gradpeel.decoder.tolerances import SLACK
from gradpeel.target import Tail

__all__ = ["polish", "refine"]


def refine(
    peeled: Peeled, labels: Tensor, residual: Residual, tail: Tail, probe: Probe
) -> Peeled | None:
    """Fit all certified samples jointly to the neurons they explain.

    Args:
        peeled: the certified samples.
        labels: (n,) their labels.
        residual: the residual without them.
        tail: the network behind the target.
        probe: the samples' weight in the loss, and how errors are probed.

    Returns:
        The refined samples, or None where the explained neurons do not determine them.
    """
    fires = peeled.activations > 0
    c = peeled.sensitivities
    fitted = _fit_explained(peeled, residual, residual.sent.rows)
    if fitted is None:
        return None
    # A sample that the explained neurons pin down worse than its own source did stays as it was.
    better = fitted.error < peeled.sample_error
    coordinates = torch.where(better[:, None], fitted.samples, peeled.coordinates)
    error = torch.where(better, fitted.error, peeled.sample_error)
    z = residual.pre_activations(coordinates)
    activations = (z * fires).clamp(min=0.0)
    simulated = simulate(tail, activations, labels, probe)
    off = simulated.error(error, residual.resolution)
    sharper = (off < peeled.sensitivity_error)[:, None]
    doubt = z.abs() <= SLACK * error[:, None] * residual.spread
    return replace(
        peeled,
        coordinates=coordinates,
        activations=activations,
        sensitivities=torch.where(sharper, simulated.c * fires, c),
        next_sensitivities=torch.where(sharper, simulated.v, peeled.next_sensitivities),
        sample_error=error,
        sensitivity_error=torch.minimum(off, peeled.sensitivity_error),
        kink=simulated.c * doubt,
    )


def polish(rows: Tensor, peeled: Peeled, residual: Residual, gradient: Tensor) -> Tensor:
    """Replace samples that their source neuron gave away inexactly by their joint fit.

    Args:
        rows: (n, features) the certified samples, each from its own source neuron.
        peeled: the same samples as the cascade knows them.
        residual: the residual without them.
        gradient: (neurons, features) weight gradient of the target, as it was sent.
    """
    if not len(rows) or float(peeled.sample_error.max()) <= math.sqrt(residual.resolution):
        return rows
    fitted = _fit_explained(peeled, residual, gradient)
    if fitted is None:
        return rows
    return torch.where((fitted.error <= peeled.sample_error)[:, None], fitted.samples, rows)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Samples by joint least squares, (n, width), and their relative errors, (n,)."""

    samples: Tensor
    error: Tensor


def _fit_explained(peeled: Peeled, residual: Residual, sent: Tensor) -> _Fit | None:
    """Solve for all samples from what was sent, (neurons, width), at the neurons they explain."""
    fires = peeled.activations > 0
    explained = residual.quiet & fires.any(0) & ~(peeled.kink != 0).any(0)
    if int(explained.sum()) < len(peeled) or not bool(fires[:, explained].any(1).all()):
        return None
    weight = 1.0 / residual.bias_error[explained, None]
    matrix = peeled.sensitivities[:, explained].T * weight
    size = matrix.norm(dim=0)
    matrix = matrix / size
    # Weights range over many decades; orthogonalising keeps its accuracy if large rows come first.
    order = matrix.norm(dim=1).argsort(descending=True)
    q, r = torch.linalg.qr(matrix[order])
    known = (sent[explained].double() * weight)[order]
    solution = torch.linalg.solve_triangular(r, q.T @ known, upper=True)
    inverse = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype), upper=True)
    error = inverse.norm(dim=1) / size
    return _Fit(solution / size[:, None], error + peeled.sensitivity_error + residual.resolution)
