"""What is left of an update while the cascade runs (paper, section "Peeling").

The paper keeps the (features, neurons) residual and touches all of it every round. It need not: a
candidate is used only through its pre-activations, and those are linear in the residual. So the state is
kept in one of two coordinate systems, whichever is smaller, and the loop does not know which:

- neuron space: rows[j] = W1 G[j], one product at the start, the floor of the whole attack. The candidate
  of neuron j has pre-activations rows[j] / h[j] + b1, and nothing as long as a sample is needed again.
- input space, for few features: rows[j] = G[j], and the candidate is the sample itself.

Beside every neuron stands an error: how far its residual may be from the exact one. It starts at the
rounding of the update's dtype and grows with every subtraction, and all tolerances follow from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.target import Target
from gradpeel.update import Update

__all__ = ["CLEAR", "ROUNDING", "SLACK", "Peeled", "Residual"]

SLACK = 32.0
"""How many times its tracked error a quantity may be off before it counts as really different."""

CLEAR = 1e3
"""How far above its error a neuron's bias must stand before its candidate can be called exact."""

ROUNDING = 8.0
"""Roundings behind one entry of an update, in units of its dtype's resolution."""


@dataclass(frozen=True)
class Peeled:
    """Certified samples on their way out of the residual.

    Attributes:
        coordinates: (n, width) in the residual's coordinate system.
        activations: (n, neurons) after the ReLU.
        sensitivities: (n, neurons), the c of the paper.
        next_sensitivities: (n, next width) loss gradient at the next layer's output, if there is one.
        sample_error: (n,) relative error of the coordinates.
        sensitivity_error: (n,) relative error of the sensitivities.
        kink: (n, neurons) sensitivity that is in doubt because its neuron stands at the ReLU's kink.
    """

    coordinates: Tensor
    activations: Tensor
    sensitivities: Tensor
    next_sensitivities: Tensor | None
    sample_error: Tensor
    sensitivity_error: Tensor
    kink: Tensor


class Residual:
    """The residual update in float64: rows (neurons, width), bias (neurons,), next (neurons, next width).

    Attributes:
        rows: the target's weight gradient in the chosen coordinates, a neuron a row.
        bias: the target's bias gradient, h of the paper.
        next_rows: the next layer's weight gradient, transposed to a neuron a row; None without one.
        error: (neurons,) absolute error of `bias`; times `scale` that of an entry of `rows`.
        next_error: (neurons,) absolute error of an entry of `next_rows`.
        scale: typical size of a candidate's coordinates.
        spread: typical size of a candidate's pre-activations less the bias.
        resolution: relative resolution of the update's dtype.
    """

    def __init__(self, target: Target, update: Update, *, use_next: bool = True) -> None:
        self._target = target
        gradient = update.gradients[target.weight_name].double()
        self.in_neuron_space = target.features > target.neurons
        # A private copy either way: the update is the caller's.
        self.rows = gradient @ target.weight.T if self.in_neuron_space else gradient.clone()
        self.bias = update.gradients[target.bias_name].double().clone()
        self.next_rows: Tensor | None = None
        name = target.tail.next_weight_name
        if use_next and name is not None and name in update.gradients:
            self.next_rows = update.gradients[name].double().T.contiguous()

        self.resolution = float(torch.finfo(update.dtype).eps)
        size = rms(self.rows)
        fires = self.bias != 0
        ratio = (
            (size[fires] / self.bias[fires].abs()).median()
            if bool(fires.any())
            else size.new_ones(())
        )
        self.scale = float(ratio) or 1.0
        self.spread = self.scale
        if not self.in_neuron_space and bool(fires.any()):
            candidates = self.rows[fires] / self.bias[fires, None]
            self.spread = float(rms(candidates @ target.weight.T).median()) or 1.0
        # Samples of opposite sign may cancel in the bias but hardly in the whole row, so the larger of
        # the two says how much was summed up.
        self.error = ROUNDING * self.resolution * torch.maximum(self.bias.abs(), size / self.scale)
        self.next_error = torch.zeros_like(self.bias)
        if self.next_rows is not None:
            self.next_error = ROUNDING * self.resolution * self.next_rows.abs().amax(1)
        self.quiet = torch.zeros(len(self.bias), dtype=torch.bool)
        self._settle(torch.ones_like(self.quiet))

    def live(self, among: Tensor) -> Tensor:
        """Indices of neurons in the mask `among` whose bias stands clear of its error."""
        return (among & (self.bias.abs() > CLEAR * self.error)).nonzero()[:, 0]

    def coordinates(self, neurons: Tensor) -> Tensor:
        """Candidates rows[j] / h[j] of the given neurons, (n, width)."""
        return self.rows[neurons] / self.bias[neurons, None]

    def pre_activations(self, coordinates: Tensor) -> Tensor:
        """Pre-activations (n, neurons) of samples given in the residual's coordinates."""
        linear = coordinates if self.in_neuron_space else coordinates @ self._target.weight.T
        return linear + self._target.bias

    def own_pre_activations(self, neurons: Tensor) -> Tensor:
        """Each candidate's pre-activation at its own neuron, without forming the rest of it."""
        if self.in_neuron_space:
            linear = self.rows[neurons, neurons]
        else:
            linear = (self.rows[neurons] * self._target.weight[neurons]).sum(1)
        return linear / self.bias[neurons] + self._target.bias[neurons]

    def subtract(self, peeled: Peeled) -> Tensor:
        """Take samples out of the residual, jointly; returns the mask of neurons this touched."""
        c = peeled.sensitivities
        self.rows.addmm_(c.T, peeled.coordinates, alpha=-1.0)
        self.bias -= c.sum(0)
        fires = c != 0
        # A sensitivity may be small by cancellation; its error is relative to the sample's typical one.
        size = c.square().sum(1, keepdim=True).div(fires.sum(1, keepdim=True)).sqrt()
        off = (
            c.abs() * peeled.sample_error[:, None]
            + fires * size * peeled.sensitivity_error[:, None]
        )
        # Errors of different samples are independent: they add up in squares.
        added = (off.square() + peeled.kink.square()).sum(0)
        self.error = (self.error.square() + added).sqrt()
        if self.next_rows is not None and peeled.next_sensitivities is not None:
            v = peeled.next_sensitivities
            self.next_rows.addmm_(peeled.activations.T, v, alpha=-1.0)
            size = v.abs().amax(1, keepdim=True)
            blur = fires * peeled.sample_error[:, None] * self.spread
            off = peeled.activations * peeled.sensitivity_error[:, None] + blur
            added = (off * size).square().sum(0)
            self.next_error = (self.next_error.square() + added).sqrt()
        touched = fires.any(0) | (peeled.kink != 0).any(0)
        self._settle(touched)
        return touched

    def _settle(self, touched: Tensor) -> None:
        """Mark neurons whose residual is zero within its error: nothing unrecovered fires there."""
        silent = touched & (self.bias.abs() <= SLACK * self.error)
        where = silent.nonzero()[:, 0]
        self.quiet &= ~touched
        self.quiet[where] = rms(self.rows[where]) <= SLACK * self.error[where] * self.scale


def rms(rows: Tensor) -> Tensor:
    """Root mean square of each row."""
    return rows.norm(dim=1) / math.sqrt(max(rows.shape[1], 1))
