"""What is left of an update while the cascade runs (paper, section "Peeling").

The paper keeps the (features, neurons) residual and changes all of it every round. That is not
necessary: a candidate is used only through its pre-activations, and those are linear in the
residual. So the state is kept in one of two coordinate systems, whichever takes less work; the loop
does not depend on the choice:

- neuron space: rows[j] = W1 G[j], one product at the start, which is the least that any such attack
  costs. The candidate of neuron j has pre-activations rows[j] / h[j] + b1, and nothing as long as a
  sample is needed again.
- input space, for fewer features than neurons: rows[j] = G[j], and the candidate is the sample
  itself. That keeps more digits, but every examination takes a product.

After several local steps the layer is not what it was at the start. A sample that is silent under
the weights that were sent and under those that were returned was hardly ever active in between. So
there are two layers to compare a candidate with, and the state is kept in input space.

Every neuron has an error: how far its residual may be from the exact one. It starts at the rounding
error of the update's dtype and grows with every subtraction; all tolerances follow from it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import mean_square, survey
from gradpeel.decoder.noise_floor import DifferenceRounding, noise_floor
from gradpeel.decoder.sample_block import SampleBlock
from gradpeel.rounding import rounding_of, row_rounding
from gradpeel.target import Target
from gradpeel.update import Update

__all__ = ["Firing", "Residual", "Sent", "rms"]


class Firing(NamedTuple):
    """At which neurons samples fire, as far as it is known.

    Attributes:
        fires: (n, neurons) where they fire; after several steps, where they may have fired in any.
        doubt: (n, neurons) where they are too near the kink to be certain. After several steps
            nowhere: there, measured sensitivities show it.
        firm: (n, neurons) where they fire for certain.
    """

    fires: Tensor
    doubt: Tensor
    firm: Tensor

    def unlike(self, rows: Tensor, nothing: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compare where samples fire with where rows of sensitivities are not zero.

        Args:
            rows: (m, neurons) the rows.
            nothing: (m,) or () what counts as zero in them.
            there: (neurons,) which neurons to compare at.

        Returns:
            (n, m) at how many of the neurons that are certain each sample differs from each row;
            (n,) how many are certain; and (n,) at how many it is silent.
        """
        silent, firm = (~self.fires & there).double(), (self.firm & there).double()
        zero = (rows.abs() <= nothing[..., None]).double()
        differ = silent @ (1.0 - zero).T + firm @ zero.T
        return differ, (silent + firm).sum(1).clamp(min=1.0), silent.sum(1)


@dataclass(frozen=True, eq=False)
class Sent:
    """The update as it was sent, in the residual's coordinates, with its rounding errors.

    Attributes:
        rows: (neurons, width) the target's weight gradient.
        bias: (neurons,) the target's bias gradient.
        next_rows: (neurons, next width) the next layer's weight gradient, one row per neuron.
        scale: typical size of an entry of a candidate.
        features: number of features of a sample.
        bias_error: (neurons,) error of `bias`.
        row_error: (neurons,) times the residual's scale, error of an entry of `rows`.
        next_error: (neurons,) error of an entry of `next_rows`.
    """

    rows: Tensor
    bias: Tensor
    next_rows: Tensor
    scale: float
    features: int
    bias_error: Tensor
    row_error: Tensor
    next_error: Tensor


class Residual:
    """The residual update, in float64.

    Attributes:
        rows: (neurons, width) the target's weight gradient in the chosen coordinates.
        bias: (neurons,) the target's bias gradient, h of the paper.
        next_rows: the next layer's weight gradient, transposed to one row per neuron; without one,
            no columns (and `has_next` is False).
        bias_error: (neurons,) absolute error of `bias`.
        row_error: (neurons,) times `scale`, the absolute error of an entry of `rows`.
        next_error: (neurons,) absolute error of an entry of `next_rows`.
        scale: typical size of a candidate's coordinates.
        spread: typical size of a candidate's pre-activations less the bias.
        row_sums: (neurons,) how pre-activations change with a constant added to all features.
        sketch: (neurons, few) the target's weight gradient as it was sent, in random directions of
            feature space.
        resolution: relative resolution of the update's dtype.
        grain: the same with the noise on the update.
        is_rounded: whether it is a difference of weights, with the roundings of weights.
        weight_rounding: how large these are, relative to the spread of the gradient's entries; 0
            for a gradient.
        broken: how far the update violates the law that all updates of these weights obey.
    """

    def __init__(self, target: Target, update: Update, *, use_next: bool = True) -> None:
        gradient = update.gradients[target.weight_name]
        fewest = target.neurons // 2 if target.neurons > LIMITS.wide else target.neurons
        returned = _returned(target, update)
        self.in_neuron_space = target.features > fewest and returned is None
        self.resolution = float(torch.finfo(update.dtype).eps)
        product, self.sketch = survey(gradient, target.weight, multiply=self.in_neuron_space)
        rows = product if self.in_neuron_space else gradient.double()
        # Wide weights stay as they are: they are no longer needed.
        self._weight = rows[:0] if self.in_neuron_space else target.weight.double()
        self._bias = target.bias.double()
        self._returned = returned
        # Where clients were averaged, each went further from the start than their mean.
        self._detour = LIMITS.detour * update.clients
        self.row_sums = target.weight.sum(1, dtype=torch.float64)
        bias = update.gradients[target.bias_name].double()
        name = target.tail.next_weight_name
        next_rows = rows[:, :0]
        if use_next and name is not None and name in update.gradients:
            next_rows = update.gradients[name].double().T.contiguous()
        self.has_next = next_rows.shape[1] > 0

        size = rms(rows)
        live = (bias != 0).nonzero()[:, 0]
        self.scale = self.spread = _typical(size[live] / bias[live].abs())
        if not self.in_neuron_space:
            some = live[:: max(1, len(live) // LIMITS.scale_candidates)]
            linear = self.pre_activations(rows[some] / bias[some, None]) - self._bias
            self.spread = _typical(rms(linear))
        own = rows.diagonal() if self.in_neuron_space else (rows * self._weight).sum(1)
        added = _rounding_of_difference(target, update, has_next=self.has_next)
        noise = noise_floor(target, gradient, bias, next_rows, own, rounding=added)
        self.grain = math.hypot(self.resolution, noise.relative)
        self.broken = noise.broken
        # Samples of opposite sign may cancel in the bias but hardly in a whole row, so the larger
        # of the two shows how much was added up.
        unit = LIMITS.rounding * self.resolution
        rounding = unit * torch.maximum(bias.abs(), size / self.scale)
        of_rows = noise.weight / self.scale
        stretch = 1.0
        if (noise.weight or added is not None) and self.in_neuron_space:
            stretch = math.sqrt(mean_square(target.weight) * target.features)
        of_rows *= stretch
        self.sent = Sent(
            rows,
            bias,
            next_rows,
            self.scale,
            target.features,
            bias_error=_hypot(rounding, noise.bias),
            row_error=_hypot(rounding, of_rows),
            next_error=_hypot(unit * next_rows.norm(dim=1), noise.next_weight),
        )
        self.is_rounded = added is not None
        self.weight_rounding = 0.0 if added is None else added.relative
        if added is not None:
            self.grain = math.hypot(self.grain, self.weight_rounding)
            self.sent = replace(
                self.sent,
                bias_error=torch.hypot(self.sent.bias_error, added.bias),
                row_error=torch.hypot(self.sent.row_error, added.weight * (stretch / self.scale)),
                next_error=torch.hypot(self.sent.next_error, added.next_weight),
            )
        self.quiet = torch.zeros_like(bias, dtype=torch.bool)
        self.restore()

    def restore(self) -> None:
        """Start over from the update as it was sent."""
        sent = self.sent
        self.rows = sent.rows.clone()
        self.bias = sent.bias.clone()
        self.next_rows = sent.next_rows.clone()
        self.bias_error = sent.bias_error.clone()
        self.row_error = sent.row_error.clone()
        self.next_error = sent.next_error.clone()
        self._settle(torch.ones_like(self.quiet))

    def rebuild(self, peeled: SampleBlock, *, bias_error: Tensor, row_error: Tensor) -> None:
        """Start over without the samples, whose joint errors at every neuron are given."""
        self.restore()
        self.subtract(peeled)
        self.bias_error, self.row_error = bias_error, row_error
        self._settle(torch.ones_like(self.quiet))

    @property
    def left(self) -> Sent:
        """What is left of the update, as if it had been sent like this."""
        return replace(
            self.sent,
            rows=self.rows,
            bias=self.bias,
            next_rows=self.next_rows,
            bias_error=self.bias_error,
            row_error=self.row_error,
            next_error=self.next_error,
        )

    def clone(self) -> Residual:
        """A copy that can be changed by itself."""
        other = copy.copy(self)
        kept = ("rows", "bias", "next_rows", "bias_error", "row_error", "next_error", "quiet")
        for name in kept:
            setattr(other, name, getattr(self, name).clone())
        return other

    def settle_doubt(
        self, neurons: Tensor, doubt: Tensor, back: Tensor, coordinates: Tensor
    ) -> None:
        """Add samples back at neurons where they were uncertain, and drop the uncertainty.

        Args:
            neurons: (m,) the neurons, none twice.
            doubt: (m,) the uncertain sensitivity.
            back: (m,) the part of it to add back.
            coordinates: (m, width) of the samples.
        """
        self.bias[neurons] += back
        self.rows[neurons] += back[:, None] * coordinates
        for error, sent in (
            (self.bias_error, self.sent.bias_error),
            (self.row_error, self.sent.row_error),
        ):
            less = error[neurons].square() - doubt.square()
            # The difference of squares has half the digits.
            least = torch.maximum(sent[neurons], LIMITS.half_the_digits * doubt.abs())
            error[neurons] = torch.maximum(less, least.square()).sqrt()
        touched = torch.zeros_like(self.quiet)
        touched[neurons] = True
        self._settle(touched)

    def live(self, among: Tensor) -> Tensor:
        """Indices of neurons in the mask `among` whose residual is well above its error."""
        clear = self.bias.abs() > LIMITS.clear * self.row_error
        return (among & clear).nonzero()[:, 0]

    def relative_error(self, neurons: Tensor) -> Tensor:
        """Relative error of the candidates of the given neurons, (n,)."""
        error = torch.hypot(self.row_error[neurons], self.bias_error[neurons])
        return error / self.bias[neurons].abs()

    def coordinates(self, neurons: Tensor) -> Tensor:
        """Candidates rows[j] / h[j] of the given neurons, (n, width)."""
        return self.rows[neurons] / self.bias[neurons, None]

    def along(self, neurons: Tensor, direction: Tensor) -> Tensor:
        """Candidates of the given neurons along a direction (width,), without forming them."""
        where = direction.nonzero()[:, 0]
        return self.rows[neurons[:, None], where] @ direction[where] / self.bias[neurons]

    def pre_activations(self, coordinates: Tensor) -> Tensor:
        """Pre-activations (n, neurons) of samples given in the residual's coordinates.

        After several steps the larger of those at both ends.
        """
        linear = coordinates if self.in_neuron_space else coordinates @ self._weight.T
        z = linear + self._bias
        return z if self._returned is None else torch.maximum(z, self._at_the_end(coordinates))

    @property
    def of_several_steps(self) -> bool:
        """Whether the update is a sum of gradients at different weights."""
        return self._returned is not None

    def _at_the_end(self, coordinates: Tensor) -> Tensor:
        """Pre-activations under the weights that came back."""
        if self._returned is None:
            return self.pre_activations(coordinates)
        weight, bias = self._returned
        return coordinates @ weight.T + bias

    def firing(self, coordinates: Tensor, z: Tensor, error: Tensor) -> Firing:
        """Tell where samples fire.

        Args:
            coordinates: (n, width) of the samples.
            z: (n, neurons) their pre-activations.
            error: (n,) their relative error.
        """
        near = LIMITS.kink * error[:, None] * self.spread
        if self._returned is None:
            fires, doubt = z > 0, z.abs() <= near
            return Firing(fires, doubt, fires & ~doubt)
        end = self._at_the_end(coordinates)
        start = coordinates @ self._weight.T + self._bias
        # Training does not go straight from one end to the other.
        margin = near + self._detour * (end - start).abs()
        fires = z > -margin
        return Firing(fires, torch.zeros_like(fires), torch.minimum(start, end) > margin)

    def linear(self, pre_activations: Tensor) -> Tensor:
        """(n, neurons) what the samples themselves contribute to their pre-activations."""
        return pre_activations - self._bias

    def own_pre_activations(self, neurons: Tensor) -> Tensor:
        """Each candidate's pre-activation at its own neuron, without forming the rest of it."""
        if self.in_neuron_space:
            linear = self.rows[neurons, neurons]
        else:
            linear = (self.rows[neurons] * self._weight[neurons]).sum(1)
        z = linear / self.bias[neurons] + self._bias[neurons]
        if self._returned is None:
            return z
        weight, bias = self._returned
        end = (self.rows[neurons] * weight[neurons]).sum(1) / self.bias[neurons] + bias[neurons]
        return torch.maximum(z, end)

    def subtract(self, peeled: SampleBlock) -> Tensor:
        """Subtract samples jointly; returns the mask of neurons that this changed."""
        c = peeled.sensitivities
        fires, kinks = c != 0, bool(peeled.kink.any())
        touched = fires.any(0)
        if kinks:
            touched |= peeled.kink.any(0)
        where = touched.nonzero()[:, 0]
        if 2 * len(where) > len(touched):
            self.rows.addmm_(c.T, peeled.coordinates, alpha=-1.0)
        else:
            self.rows.index_add_(0, where, c[:, where].T @ peeled.coordinates, alpha=-1.0)
        self.bias -= c.sum(0)
        # Errors of different samples are independent: they add up in squares. A sensitivity may be
        # small by cancellation; its error is relative to the typical one.
        fires, square = fires.to(c.dtype), c.square()
        typical_square = square.sum(1) / fires.sum(1).clamp(min=1)
        off = peeled.sensitivity_error.square()
        added = (typical_square * off) @ fires
        if kinks:
            added += peeled.kink.square().sum(0)
        self.bias_error = (self.bias_error.square() + added).sqrt()
        added += peeled.sample_error.square() @ square
        self.row_error = (self.row_error.square() + added).sqrt()
        if self.has_next:
            v, a = peeled.next_sensitivities, peeled.activations
            self.next_rows.addmm_(a.T, v, alpha=-1.0)
            blur = peeled.sample_error * self.spread
            size = v.abs().amax(1).square()
            off = peeled.next_error
            # (a off + blur)^2, where the sample fires.
            added = (size * off.square()) @ a.square() + (size * blur.square()) @ fires
            added += (2 * size * blur * off) @ (a * fires)
            self.next_error = (self.next_error.square() + added).sqrt()
        self._settle(touched)
        return touched

    def _settle(self, touched: Tensor) -> None:
        """Mark neurons whose residual is zero within its error: nothing unrecovered fires there."""
        silent = touched & (self.bias.abs() <= LIMITS.nothing * self.bias_error)
        where = silent.nonzero()[:, 0]
        self.quiet &= ~touched
        self.quiet[where] = (
            rms(self.rows[where]) <= LIMITS.nothing * self.row_error[where] * self.scale
        )


def _returned(target: Target, update: Update) -> tuple[Tensor, Tensor] | None:
    """The target's weight and bias at the end of several local steps; None after a single one."""
    training = update.training
    if training is None or training.is_one_step:
        return None
    lr = 1.0 if training.lr is None else training.lr
    kept = 1.0 if training.kept is None else training.kept
    weight, bias = (
        kept * sent.double() - lr * update.gradients[name].double()
        for sent, name in ((target.weight, target.weight_name), (target.bias, target.bias_name))
    )
    return weight, bias


def _rounding_of_difference(
    target: Target, update: Update, *, has_next: bool
) -> DifferenceRounding | None:
    """Errors of an update that is a difference of weights; None for a gradient.

    They are absolute: the client rounded weights, not gradients.
    """
    training = update.training
    if training is None:
        return None
    weight = row_rounding(target.weight, update.dtype, training)
    layer = target.tail.next_layer
    next_weight = torch.zeros_like(weight)
    if has_next and layer is not None:
        next_weight = row_rounding(layer.weight.T, update.dtype, training)
    size = math.sqrt(mean_square(update.gradients[target.weight_name], centred=True))
    return DifferenceRounding(
        weight=weight,
        bias=rounding_of(_largest(target.bias, update, target.bias_name), update.dtype, training),
        next_weight=next_weight,
        relative=float(weight.square().mean().sqrt()) / (size or 1.0),
    )


def _largest(weights: Tensor, update: Update, name: str) -> Tensor:
    """The larger ones of the weights before and after; both were rounded."""
    lr = 1.0 if update.training is None else update.training.lr or 1.0
    after = weights - lr * update.gradients[name].to(weights)
    return torch.maximum(weights.abs(), after.abs())


def _hypot(errors: Tensor, noise: float) -> Tensor:
    return errors if noise == 0 else torch.hypot(errors, torch.full_like(errors, noise))


def _typical(sizes: Tensor) -> float:
    """The median; the mean if most are almost zero; 1 where there is nothing to measure."""
    return float(sizes.median()) or float(sizes.mean()) if bool(sizes.any()) else 1.0


def rms(rows: Tensor) -> Tensor:
    """Root mean square of each row."""
    size: Tensor = rows.norm(dim=1) / math.sqrt(max(rows.shape[1], 1))
    return size
