"""Rows and samples that agree with each other, after several local steps.

A row that is a sum of two, c_1 + a c_2, hardly shows. The first sample comes out right all the
same, and the second as x_2 - a x_1, which for a small a is nearly right, with a row of its own that
is right. In a single step such a sample betrays itself, because its firing pattern and its loss
gradient must be right to the last digit. After several steps patterns are known less well.

But each sample, once it is solved for, says where its row must be zero, and that determines the row
a second time. So rows that differ are replaced, and the samples are solved for again, until all
rows are those that their own samples give. A row whose sample gives none is dropped, and so is one
that others add up to: the search continues without them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Firing, Residual
from gradpeel.decoder.rows.finding import Rows, nearness, sparsest
from gradpeel.decoder.rows.polish import polish_by_silence
from gradpeel.decoder.rows.solving import Solution, solve

__all__ = ["settle"]


def settle(rows: Rows, residual: Residual) -> tuple[Solution | None, Rows]:
    """Solve for samples whose rows are those that they give themselves.

    Args:
        rows: the rows that were found.
        residual: what is left of the update.

    Returns:
        The samples, None where the rows do not determine them or some were dropped; and the rows.
    """
    for _ in range(LIMITS.row_settle_steps):
        found = solve(rows, residual)
        if found is None:
            break
        again = _rows_of(found, rows, residual)
        if again is rows:
            return found, rows
        if len(again) < len(rows):
            return None, again
        rows = again
    return None, rows


def _rows_of(found: Solution, rows: Rows, residual: Residual) -> Rows:
    """The rows that samples give; the same object if they are those that the samples came from.

    Where a sample fired in between at many neurons, though at neither end, its pattern gives no
    row. Then the row that it came from stays, unless another fits the pattern nearly as well.
    """
    live = rows.space.live
    z = residual.pre_activations(found.samples)
    firing = Firing(
        *(part[:, live] for part in residual.firing(found.samples, z, found.sample_error))
    )
    given = [polish_by_silence(rows.space, ~fires) for fires in firing.fires]
    row, error = (torch.stack(part) for part in zip(*given, strict=True))
    good = error <= LIMITS.row_error
    near = torch.maximum(nearness(error), nearness(rows.error))
    agrees = good & ((row * rows.rows).sum(1).abs() > 1.0 - near)
    agrees |= ~good & _is_supported(rows, firing)
    if bool(agrees.all()):
        return rows
    good |= agrees
    row = torch.where(agrees[:, None], rows.rows, row)[good]
    error = torch.where(agrees, rows.error, error)[good]
    kept = sparsest(row, error)
    return replace(rows, rows=row[kept], error=error[kept])


def _is_supported(rows: Rows, firing: Firing) -> Tensor:
    """(n,) whether samples fire where their rows are not zero, and no other row fits them.

    Where few neurons fire, a sum of two rows may look like the longer of the two. Without the other
    it is zero at more neurons, so no other row may leave fewer of this one.
    """
    everywhere = torch.ones_like(firing.fires[0])
    unlike, certain, _ = firing.unlike(rows.rows, torch.zeros_like(rows.error), everywhere)
    own = unlike.diagonal()
    another = (unlike + torch.diag(own.new_full((len(own),), torch.inf))).amin(1)
    fewest = torch.minimum(certain, (rows.rows != 0).sum(1))
    supported = (own <= LIMITS.hidden_support * fewest) & (own <= LIMITS.own_support * another)
    for i in supported.nonzero()[:, 0].tolist():
        supported[i] = not _adds_up(rows.rows[i], torch.cat([rows.rows[:i], rows.rows[i + 1 :]]))
    return supported


def _adds_up(row: Tensor, others: Tensor) -> bool:
    """Whether a row, (live,), has more zeros without a multiple of another one, (n, live)."""
    both = (row != 0) & (others != 0)
    ratios = torch.where(both, row / others, torch.nan).sort(dim=1).values
    # At three neurons in a row the same, and not by chance.
    alike = (ratios[:, 2:] - ratios[:, :-2]).abs() <= LIMITS.same_ratio * ratios[:, 2:].abs()
    gained = alike.sum(1) + 2
    lost = ((row == 0) & (others != 0)).sum(1)
    return bool((alike.any(1) & (gained > lost)).any())
