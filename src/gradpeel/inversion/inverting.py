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

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gradpeel.checks import check_data_range, check_positive_integer, check_seed
from gradpeel.decoder import Recovery
from gradpeel.errors import InputError
from gradpeel.inversion.asking import check_features, check_shape, check_takes, check_values
from gradpeel.inversion.columns import looked_up, read_columns
from gradpeel.inversion.confirming import gradient_mismatch
from gradpeel.inversion.forward import FrontMap, check_can_be_inverted
from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.leaking import leaked_tokens
from gradpeel.inversion.search import Search
from gradpeel.inversion.tokens import read_tokens, takes_tokens
from gradpeel.losses import CrossEntropy
from gradpeel.target import split
from gradpeel.torch_losses import GivenLoss, as_loss
from gradpeel.update import Update

__all__ = ["invert"]

OnProgress = Callable[[int, int], None]

ROUNDING = 100.0
"""Units of rounding within which features are the same."""
FEATURE_ERRORS = 10.0
"""Features that carry an error of their own count as reached within this many of it."""


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
        allowed = check_values(values)

        def make_search(maps: tuple[FrontMap, FrontMap], of: tuple[int, ...]) -> Search:
            return Search(maps, front.layer, of, data_range=data_range, starts=starts, seed=seed)

        places = looked_up(front, shape)
        if len(places):
            found = read_columns(
                front,
                rows,
                shape,
                places,
                reached,
                make_search=make_search,
                values=allowed,
                on_progress=on_progress,
            )
        else:
            maps = (FrontMap(front, own), FrontMap(front, torch.float32))
            found = make_search(maps, shape).run(rows, reached, allowed, on_progress)
    mismatch = None
    if isinstance(features, Recovery) and update is not None:
        known = as_loss(loss, reduction=update.reduction)
        mismatch = gradient_mismatch(
            model, front, features, found.inputs, update=update, loss=known
        )
    return found.finished(mismatch, time.perf_counter() - started)
