"""Refinement: all certified samples together, against the update as it was sent.

Along the cascade errors pile up: a late sample is read from what is left after many subtractions.
But once samples are known, every neuron that only they fire is an equation about them,

    sum_i c_ij x_i = what was sent at neuron j,

and there are far more such neurons than were used to find the samples. Least squares over all of
them, each weighted by its own error, puts the samples back to the resolution of the update;
simulating them anew does the same for their sensitivities. Then fainter samples come into sight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.peeled import Peeled, typical
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.simulation import Probe, simulate
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import SLACK
from gradpeel.target import Tail

__all__ = ["Fit", "Refined", "refine"]

GAIN = 0.1
"""Both errors are estimates: a fit replaces what the cascade read only if it gains a digit."""

_TRIMS = 12
"""How often contaminated neurons are left out before the fit is given up."""

_SHARP = 1e-12
"""Sensitivities better known than this are left as they are."""


@dataclass(frozen=True, eq=False)
class Refined:
    """Refined samples, and how to get them in any coordinates.

    Attributes:
        peeled: all samples, refined where that gained a digit.
        better: (n,) which of them come from the joint fit.
        fit: the joint fit.
    """

    peeled: Peeled
    better: Tensor
    fit: Fit


def refine(
    peeled: Peeled,
    labels: Tensor,
    residual: Residual,
    tail: Tail,
    *,
    probe: Probe,
    structure: Structure,
) -> Refined | None:
    """Fit all certified samples jointly to the neurons they explain.

    Args:
        peeled: the certified samples.
        labels: (n,) their labels.
        residual: the residual without them.
        tail: the network behind the target.
        probe: the samples' weight in the loss, and how errors are probed.
        structure: the column space of the update, which makes sensitivities exact.

    Returns:
        The refined samples, or None where nothing was gained.
    """
    fires = peeled.activations > 0
    fit = _fit_explained(_sharpened(peeled, structure), residual)
    if fit is None:
        return None
    fitted = fit.solve(residual.sent.rows, residual.sent.bias)
    # A fit that gains a digit must still agree with what was read: a trace of somebody unknown can
    # move it unseen.
    moved = rms(fitted - peeled.coordinates) / residual.scale
    better = (fit.error < peeled.sample_error * GAIN) & (moved <= SLACK * peeled.sample_error)
    coordinates = torch.where(better[:, None], fitted, peeled.coordinates)
    error = torch.where(better, fit.error, peeled.sample_error)
    z = residual.pre_activations(coordinates)
    activations = (z * fires).clamp(min=0.0)
    simulated = simulate(tail, activations, labels, probe)
    off = simulated.error(error, residual.resolution)
    exact = off < peeled.sensitivity_error * GAIN
    if not bool((better | exact).any()):
        return None
    doubt = z.abs() <= SLACK * error[:, None] * residual.spread
    refined = replace(
        peeled,
        coordinates=coordinates,
        activations=activations,
        sensitivities=torch.where(exact[:, None], simulated.c * fires, peeled.sensitivities),
        next_sensitivities=torch.where(exact[:, None], simulated.v, peeled.next_sensitivities),
        sample_error=error,
        sensitivity_error=torch.where(exact, off, peeled.sensitivity_error),
        kink=simulated.c * doubt,
    )
    return Refined(refined, better, fit)


def _sharpened(peeled: Peeled, structure: Structure) -> Peeled:
    """The samples with sensitivities from the structure of the update, where that gains a digit."""
    vague = (peeled.sensitivity_error > _SHARP).nonzero()[:, 0]
    c, error = structure.sharpen(peeled.sensitivities[vague], peeled.activations[vague] > 0)
    gains = error < peeled.sensitivity_error[vague] * GAIN
    sensitivities, off = peeled.sensitivities.clone(), peeled.sensitivity_error.clone()
    sensitivities[vague[gains]] = c[gains]
    off[vague[gains]] = error[gains]
    return replace(peeled, sensitivities=sensitivities, sensitivity_error=off)


@dataclass(frozen=True, eq=False)
class Fit:
    """Weighted least squares for all samples at once, factored.

    Attributes:
        error: (n,) relative error of each sample.
        explained: (m,) the neurons that only known samples fire.
        weights: (m, 1) what each of them counts.
        q: (m, n) orthogonal factor.
        r: (n, n) triangular factor.
        size: (n,) norms of the weighted equations' columns.
    """

    error: Tensor
    explained: Tensor
    weights: Tensor
    q: Tensor
    r: Tensor
    size: Tensor

    def solve(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Samples (n, width) from what was sent: rows (neurons, width) and bias (neurons,).

        The bias gradient is one more column, that of a feature which is 1 in every sample; it sets
        the scale of each sample's sensitivities.
        """
        known = torch.cat([rows[self.explained], bias[self.explained, None]], 1).double()
        solution = self._least_squares(known)
        return solution[:, :-1] / solution[:, -1:]

    def scale(self, bias: Tensor) -> Tensor:
        """(n,) by how much each sample's sensitivities fall short of what the bias says."""
        return self._least_squares(bias[self.explained, None])[:, 0]

    def _least_squares(self, known: Tensor) -> Tensor:
        solution: Tensor = torch.linalg.solve_triangular(
            self.r, self.q.T @ (known * self.weights), upper=True
        )
        return solution / self.size[:, None]


def _fit_explained(peeled: Peeled, residual: Residual) -> Fit | None:
    """Fit the samples to the neurons they explain; None where those do not determine them.

    A neuron may pass for explained although a sample too faint to be seen fires it. It shows in the
    fit, being off by more than its error, and is left out of the next one.
    """
    c = peeled.sensitivities
    fires = peeled.activations > 0
    explained = residual.quiet & fires.any(0) & ~(peeled.kink != 0).any(0)
    off = (fires * (typical(c) * peeled.sensitivity_error)[:, None]).square().sum(0)
    weights = (residual.sent.error.square() + off).rsqrt()
    error = peeled.sensitivity_error + residual.resolution
    for _ in range(_TRIMS):
        if int(explained.sum()) < len(peeled) or not bool(fires[:, explained].any(1).all()):
            return None
        fit = _factor((c * weights).T, explained, weights, error)
        gap = residual.sent.bias - fit.scale(residual.sent.bias) @ c
        off_by = torch.where(explained, (gap * weights).abs(), 0.0)
        worst = float(off_by.max())
        if worst <= SLACK:
            return fit
        # One neuron far off spoils the fit at all others: only the worst go at once.
        explained &= off_by < max(SLACK, worst / 10)
    return None


def _factor(matrix: Tensor, explained: Tensor, weights: Tensor, error: Tensor) -> Fit:
    """Factor the weighted equations, (neurons, n), of the explained neurons."""
    # Weights range over many decades; orthogonalising keeps its accuracy if large rows come first.
    order = (matrix / matrix[explained].norm(dim=0)).norm(dim=1).argsort(descending=True)
    order = order[explained[order]]
    size = matrix[order].norm(dim=0)
    q, r = torch.linalg.qr(matrix[order] / size)
    inverse = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype), upper=True)
    return Fit(inverse.norm(dim=1) / size + error, order, weights[order, None], q, r, size)
