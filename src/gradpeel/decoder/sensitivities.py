"""Sensitivities read off the residual, where that is more exact than computing them.

At a neuron that isolates a sample the residual bias *is* its sensitivity, and the next layer's
residual is a_j v, so v can be measured: with no more error than the residual has, for any loss and
any tail behind it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual

__all__ = ["measure_c", "measure_v", "trespassers"]


def measure_v(
    candidates: Candidates, residual: Residual, activations: Tensor, error: Tensor
) -> tuple[Tensor, Tensor]:
    """Read v off the next layer's residual at every neuron that isolates a candidate.

    Args:
        candidates: the candidates.
        residual: the current residual.
        activations: (n, neurons).
        error: (n,) relative error of the candidates.

    Returns:
        (n, next width) v, and (n,) its relative error.
    """
    row, column = candidates.pairs
    a = activations[row, column]
    own = residual.next_rows[candidates.neurons]
    tiny = torch.finfo(a.dtype).tiny
    size = own.abs().amax(1) / activations.gather(1, candidates.neurons[:, None])[:, 0]
    size = size.clamp(min=tiny)
    blur = (error * residual.spread * size)[row]
    weight = 1.0 / (residual.next_error[column].square() + blur.square()).clamp(min=tiny)
    votes = (weight * a)[:, None] * residual.next_rows[column]
    top = torch.zeros_like(own).index_add_(0, row, votes)
    bottom = torch.zeros_like(error).index_add_(0, row, weight * a.square()).clamp(min=tiny)
    return top / bottom[:, None], 1.0 / (bottom.sqrt() * size)


def measure_c(candidates: Candidates, residual: Residual, c: Tensor, error: Tensor) -> Tensor:
    """Replace sensitivities by the residual bias at neurons that isolate a candidate.

    Where computing them is more exact than that, the difference is a trace of a fainter sample, and
    stays in the residual.

    Args:
        candidates: the candidates.
        residual: the current residual.
        c: (n, neurons) sensitivities as computed.
        error: (n,) their error, where they are of typical size.
    """
    row, column = candidates.pairs
    better = residual.bias_error[column] < error[row]
    row, column = row[better], column[better]
    c = c.clone()
    c[row, column] = residual.bias[column]
    return c


def trespassers(residual: Residual, c: Tensor) -> Tensor:
    """(n,) which candidates have sensitivity c where the residual is already zero.

    "Zero" means within its error: what remains there may belong to them.
    """
    quiet = residual.quiet
    limit = LIMITS.slack * residual.bias_error[quiet]
    there = c[:, quiet]
    alien = (there.abs() > limit) & ((there - residual.bias[quiet]).abs() > limit)
    return alien.any(1)
