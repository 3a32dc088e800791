"""From features back to inputs: least squares through the front, from several starts.

A target behind convolutions hands out exact *features* (`gradpeel.target.features`). This module
looks for the inputs that have these features: `descend` finds the right linear piece of the front,
`refine` solves it to rounding. Where features determine the input, that is the input itself; where
they do not, a range and a prior choose among the inputs that fit. Each result says which of the two
holds. It is a *reconstruction*, never a certificate: the features are certified, and nothing proves
that no other input has them, except where inputs are tokens (`gradpeel.inversion.tokens`).

Example:
    >>> import gradpeel as gp
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(
    ...     nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 64), nn.ReLU(),
    ...     nn.Linear(64, 3),
    ... )
    >>> x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    >>> recovery = gp.peel(model, gp.local_update(model, x, y))
    >>> found = invert(model, recovery, sample_shape=(1, 8, 8), data_range=(0, 1))
    >>> found
    Inversion(4 reconstructions from features of layer '3', 4 determined)
    >>> closest = torch.cdist(found.inputs.flatten(1), x.flatten(1)).amin(1)
    >>> bool((closest < 1e-3).all())
    True
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gradpeel.checks import check_data_range, check_positive_integer, check_seed
from gradpeel.decoder import Recovery
from gradpeel.errors import InputError
from gradpeel.inversion.asking import check_features, check_shape, check_takes, check_values
from gradpeel.inversion.box import Box
from gradpeel.inversion.confirming import gradient_mismatch
from gradpeel.inversion.descent import COARSE, FINE, Schedule, descend
from gradpeel.inversion.forward import FrontMap, check_can_be_inverted
from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.leaking import leaked_tokens
from gradpeel.inversion.least_squares import hidden_shares, refine
from gradpeel.inversion.prior import picture_prior
from gradpeel.inversion.tokens import read_tokens, takes_tokens
from gradpeel.losses import CrossEntropy
from gradpeel.target import FeatureFront, split
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.update import Update

__all__ = ["invert"]

OnProgress = Callable[[int, int], None]

CHUNK = 16
"""Samples that are reconstructed together; more of them do not fit a processor's cache."""
FLOOR, ROUNDING = 4.0, 100.0
"""Units of rounding below which nothing is gained; and within which features are the same."""
FEATURE_ERRORS = 10.0
"""Features that carry an error of their own count as reached within this many of it."""
STUCK = 1e-2
"""Relative distance from which on another start is worth trying."""
HIDDEN = 1e-3
"""Share of one free dimension that would be seen in what random directions do not give back."""


def invert(
    model: nn.Module,
    features: Recovery | Tensor,
    *,
    sample_shape: Sequence[int],
    data_range: tuple[float, float] | None = None,
    values: Sequence[float] | Tensor | None = None,
    update: Update | None = None,
    loss: GivenLoss = CrossEntropy(),  # noqa: B008 -- immutable
    layer: str | None = None,
    starts: int = 4,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Inversion:
    """Reconstruct inputs from features that entered the target, one by one.

    Args:
        model: the network the features come from, in the mode in which the client ran it.
        features: what `gradpeel.peel` recovered, or (n, features) what entered the layer.
        sample_shape: shape of one input, such as (3, 32, 32); (length,) for tokens.
        data_range: smallest and largest value of inputs, such as (0, 1); by default none is known.
            Steps are measured by it: without it, inputs should be of the size of 1.
        values: the only values that inputs can have, such as (0, 1) for binary pixels. A
            reconstruction is moved to the closest of them if it then still has the features.
        update: the update that the features were recovered from. The gradients of the front in it
            check a completely recovered batch, and those of embeddings name its tokens.
        loss: what the client minimised, for that check.
        layer: name of the layer whose features these are; by default that of the recovery, or the
            first one that can be read.
        starts: how many starts to try at most; another one is tried where none fits so far.
        seed: seed of random starts and of the test of what features determine.
        on_progress: called with the number of inputs that are done, and of all.

    Returns:
        One reconstruction per feature vector, in their order, with its residual and whether it is
        determined by the features.

    Raises:
        ModelRefusedError: the network has no target, or gives an input other features each time.
        InputError: features of another width or that are not finite, a shape that the network does
            not take, a layer that several rows of an input enter or whose features have no
            derivative, inputs that are recovered already, or a setting that breaks its rule.
    """
    started = time.perf_counter()
    check_data_range(data_range)
    check_positive_integer("starts", starts)
    check_seed(seed)
    if isinstance(features, Recovery):
        layer = features.layer if layer is None else layer
    if update is not None and not isinstance(update, Update):
        raise InputError(f"update of type {type(update).__name__}: expected gradpeel.Update")
    target = split(model, layer=layer)
    front = check_can_be_inverted(target.front)
    shape = check_shape(sample_shape)
    # Half precision has no room for the steps of a search.
    own = target.weight.dtype if target.weight.dtype is torch.float64 else torch.float32
    rows = check_features(features, front.features).to(own).cpu()
    reached = torch.full((len(rows),), ROUNDING * torch.finfo(own).eps, dtype=torch.float64)
    if isinstance(features, Recovery):
        reached = torch.maximum(reached, FEATURE_ERRORS * features.errors.double().cpu())
    if takes_tokens(front, shape):
        found = read_tokens(
            front,
            rows,
            shape,
            reached,
            among=None if update is None else leaked_tokens(model, update),
            on_progress=on_progress,
        )
    else:
        check_takes(front, shape)
        search = _Search(front, shape, data_range=data_range, dtype=own, starts=starts, seed=seed)
        parts, allowed = [], check_values(values)
        for first in range(0, len(rows), CHUNK):
            part = slice(first, first + CHUNK)
            parts.append(search.run(rows[part], reached[part], allowed))
            if on_progress is not None:
                on_progress(min(first + CHUNK, len(rows)), len(rows))
        found = Inversion.joined(parts, front.layer, shape)
    mismatch = None
    if isinstance(features, Recovery) and update is not None:
        known = as_loss(loss, reduction=update.reduction)
        mismatch = gradient_mismatch(
            model, front, features, found.inputs, update=update, loss=known
        )
    return found.finished(mismatch, time.perf_counter() - started)


class _Search:
    """Reconstruct continuous inputs; see `invert` for the arguments."""

    def __init__(
        self,
        front: FeatureFront,
        shape: tuple[int, ...],
        *,
        data_range: tuple[float, float] | None,
        dtype: torch.dtype,
        starts: int,
        seed: int,
    ) -> None:
        self.front, self.coarse = FrontMap(front, dtype), FrontMap(front, torch.float32)
        self.layer, self.shape, self.starts, self.seed = front.layer, shape, starts, seed
        self.box = Box(*(data_range or (-math.inf, math.inf)))
        self.prior = picture_prior(shape)
        self.floor = FLOOR * torch.finfo(dtype).eps

    def run(self, features: Tensor, reached: Tensor, values: Tensor | None) -> Inversion:
        """Reconstruct the inputs of some features, (n, features)."""
        x = torch.zeros((len(features), *self.shape), dtype=self.front.dtype)
        best = torch.full((len(features),), math.inf, dtype=self.front.dtype)
        won = torch.zeros(len(features), dtype=torch.int64)
        for number in range(self.starts):
            open_ = torch.nonzero(best > STUCK).flatten()
            if not len(open_):
                break
            start = self.box.start(number, (len(open_), *self.shape), self.seed)
            tried, distances = self._solve(features[open_], start, COARSE)
            is_better = distances < best[open_]
            chosen = open_[is_better]
            x[chosen], best[chosen], won[chosen] = tried[is_better], distances[is_better], number
        rough = torch.nonzero((best > reached) & (best <= STUCK)).flatten()
        if self.prior is not None and len(rough):
            x[rough], _ = self._solve(features[rough], x[rough], FINE)
        if values is not None:
            snapped = closest(x, values)
            fits = self.front.distances(snapped, features) <= reached
            x[fits] = snapped[fits]
        residuals = self.front.distances(x, features).double()
        generator = torch.Generator().manual_seed(self.seed)
        hidden = hidden_shares(self.front, x, generator).double()
        one = HIDDEN / math.prod(self.shape)
        return Inversion(
            layer=self.layer,
            inputs=x,
            residuals=residuals,
            starts=won,
            determined=(residuals <= reached) & (hidden.amax(1) <= one),
            hidden=hidden.mean(1),
        )

    def _solve(self, features: Tensor, start: Tensor, schedule: Schedule) -> tuple[Tensor, Tensor]:
        """Inputs near the right piece of the front, solved there; with their distances, (n,)."""
        near = descend(
            self.coarse,
            features.float(),
            start.float(),
            box=self.box,
            prior=self.prior,
            schedule=schedule,
        )
        return refine(self.front, features, near.to(self.front.dtype), self.box, floor=self.floor)


def closest(x: Tensor, values: Tensor) -> Tensor:
    """Each number of x moved to the closest of some values.

    Example:
        >>> closest(torch.tensor([0.2, 0.9]), torch.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    values = values.to(x)
    above = torch.searchsorted(values, x.contiguous()).clamp(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    return torch.where(x - low <= high - x, low, high)
