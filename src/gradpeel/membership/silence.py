"""A second witness for a record: the neurons that it does not fire.

That a record lies in the span of the update says little where the data leave no room outside it:
one-hot rows and other discrete records are often sums and differences of one another. The update's
column space over neurons tells more. If the record took part, its sensitivities lie in that space,
and they vanish at every neuron that the record does not fire. A space of r dimensions has a vector
that vanishes at r - 1 neurons of anybody's choice, and at more of them only if it must.

It needs more silent neurons than the space has dimensions, and samples that are independent of one
another; where these are missing it does not confirm anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gradpeel.decoder.evidence.structure import null_vector
from gradpeel.membership.span import RowSpan
from gradpeel.target import Target

__all__ = ["confirm"]

_SPARE = 8
"""Silent neurons beyond those at which any space could be made to vanish."""

_ERRORS = 5.0
_UNIQUE = 0.1
"""The vector must vanish so much better than the next best one."""


def confirm(span: RowSpan, targets: Sequence[Target], rows: Tensor) -> Tensor:
    """Tell which records' silence shows that they took part.

    Args:
        span: the span of the update.
        targets: the target as received, and as returned after local training.
        rows: (n, features) what enters the target, in its dtype.

    Returns:
        (n,) mask; False where nothing can be concluded.
    """
    if not len(rows) or not span.rank:
        return torch.zeros(len(rows), dtype=torch.bool)
    live = span.noise > 0
    basis = span.columns[live]
    found = torch.zeros(len(rows), dtype=torch.bool)
    silent = torch.ones(len(rows), int(live.sum()), dtype=torch.bool)
    for target in targets:
        z = target.pre_activations(rows)[:, live].double()
        # A neuron at its kink may have fired or not.
        margin = 64 * torch.finfo(rows.dtype).eps * z.abs().amax(1, keepdim=True)
        silent &= z < -margin
    for place in (silent.sum(1) >= span.rank + _SPARE).nonzero()[:, 0].tolist():
        off = silent[place]
        vector, _, unlike = null_vector(basis, ~off)
        leak = float((basis[off] @ vector).norm())
        # What the noise would leave of a vector that vanishes there, to first order.
        noise = max(math.sqrt(int(off.sum())), span.edge / 2)
        allowed = _ERRORS * noise * float((vector / span.strengths).norm())
        found[place] = leak <= min(allowed, _UNIQUE) and float(unlike) <= _UNIQUE
    return found
