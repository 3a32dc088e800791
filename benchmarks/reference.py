"""The paper's loop as it is written, to compare with. Not part of the package.

Every round forms the candidates of all neurons, compares them pairwise, certifies what is distinct
by the bias equation with one absolute tolerance, and subtracts from the whole (neurons, features)
residual (paper, algorithm "The Peeling Decoder").
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import gradpeel as gp

__all__ = ["Reference", "reference_peel"]

_TOLERANCE = 1e-8
"""Largest norm of the certificate's mismatch."""

_MERGE = 1e-5
"""Candidates nearer than this, entry by entry, are one."""

_DEAD = 1e-12
"""Bias entries below this hand out nothing."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What the loop found.

    Attributes:
        samples: (n, features) at the target's input.
        labels: (n,).
        rounds: rounds in which something was certified.
        ended: nothing more was to be found; otherwise it was given up.
    """

    samples: Tensor
    labels: Tensor
    rounds: int
    ended: bool = True


def reference_peel(
    model: nn.Module,
    update: gp.Update,
    *,
    data_range: tuple[float, float] | None = None,
    give_up_after: float = math.inf,
) -> Reference:
    """Decode an update as the paper's pseudocode does.

    Args:
        model: the network the update was computed on.
        update: what the client sent, of a known batch size.
        data_range: candidates with entries outside are discarded before they are compared.
        give_up_after: CPU seconds after which no further round is begun.
    """
    if update.share is None:
        raise SystemExit("the paper's loop needs the batch size")
    target = gp.split(model).to(dtype=torch.float64)
    rows = update.gradients[target.weight_name].double().clone()
    bias = update.gradients[target.bias_name].double().clone()
    samples, labels, rounds = rows[:0], torch.zeros(0, dtype=torch.long), 0
    started = time.process_time()
    while time.process_time() - started < give_up_after:
        live = (bias.abs() > _DEAD).nonzero()[:, 0]
        candidates = rows[live] / bias[live, None]
        if data_range is not None:
            low, high = data_range
            inside = ((candidates >= low - _MERGE) & (candidates <= high + _MERGE)).all(1)
            live, candidates = live[inside], candidates[inside]
        if not len(candidates):
            return Reference(samples, labels, rounds)
        first = _near(candidates, candidates).double().argmax(1)
        known = _near(candidates, samples).any(1)
        distinct = ((first == torch.arange(len(first))) & ~known).nonzero()[:, 0]
        found = candidates[distinct]
        pools = [live[first == i] for i in distinct.tolist()]
        fitted, mismatch = _fit_labels(target, found, pools, bias / update.share)
        certified = mismatch * update.share <= _TOLERANCE
        found, fitted = found[certified], fitted[certified]
        if not len(found):
            return Reference(samples, labels, rounds)
        rounds += 1
        z = target.pre_activations(found)
        logits, pull = torch.func.vjp(target.tail, z.relu())[:2]
        gradient = torch.softmax(logits, 1) - functional.one_hot(fitted, logits.shape[1])
        c = pull(update.share * gradient)[0] * (z > 0)
        rows -= c.T @ found
        bias -= c.sum(0)
        samples, labels = torch.cat([samples, found]), torch.cat([labels, fitted])
    return Reference(samples, labels, rounds, ended=False)


def _fit_labels(
    target: gp.Target, candidates: Tensor, pools: list[Tensor], bias: Tensor
) -> tuple[Tensor, Tensor]:
    """(n,) the label that fits each candidate best (paper, eq. labelfit), and (n,) its mismatch.

    Args:
        target: the target.
        candidates: (n, features).
        pools: for each the neurons that hand it out.
        bias: (neurons,) the residual bias of a loss summed over the batch.
    """
    z = target.pre_activations(candidates)
    p = torch.softmax(target.tail(z.relu()), 1)
    labels = torch.zeros(len(candidates), dtype=torch.long)
    mismatch = torch.full((len(candidates),), torch.inf, dtype=torch.float64)
    for i, pool in enumerate(pools):
        if not bool((z[i, pool] > 0).all()):
            continue
        columns = functional.one_hot(pool, z.shape[1]).double()
        along = torch.func.jvp(target.tail, (z[i].relu().repeat(len(pool), 1),), (columns,))[1]
        gaps = ((along @ p[i])[:, None] - along - bias[pool, None]).norm(dim=0)
        mismatch[i], labels[i] = gaps.min(0)
    return labels, mismatch


def _near(these: Tensor, those: Tensor) -> Tensor:
    """(n, m) which pairs agree in every entry."""
    return torch.cdist(these, those, p=torch.inf) <= _MERGE
