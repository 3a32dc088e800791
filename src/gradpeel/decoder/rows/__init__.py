"""The row cascade: reading samples where no neuron stands alone.

Peeling needs a neuron that one unknown sample fires alone. The linear algebra of an update holds
more. The target's weight gradient is G = C^T X, so the column space of G over neurons is spanned by
the rows of C, the samples' sensitivities; and each row is zero wherever its sample is silent, which
is at hundreds of neurons. No other vector of a space of `rank` dimensions is zero at many more than
`rank` of them. So a row can be found from a rough idea of where its sample is silent, and any
mixture of samples is such an idea.

1. `space`: the column space of what peeling has left.
2. `seeds`: mixtures of samples that are not found yet, made without knowing a single sample.
3. `search`: from the firing pattern of each mixture to a vector that lies in the space and looks
   like a row (`row_sets`), many at once, in float32. `remainder`: the same for the last few rows.
4. `polish`: from there to the row itself, in all digits of the update; what is no row is rejected.
5. `solving`: once all rows are known, the samples are the solution of a linear system; after
   several local steps, `settling`: rows and samples must agree with each other. `reading`:
   each of them is then checked against the update as if it had been read from a neuron that it
   fires alone: with all others subtracted, it does.

Nothing is certified here: that is left to `gradpeel.decoder.certificate`, as for every candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import RowCount
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.directions import directions
from gradpeel.decoder.rows.finding import can_help, find_rows
from gradpeel.decoder.rows.quotients import read_quotients
from gradpeel.decoder.rows.reading import Isolated, isolate
from gradpeel.decoder.rows.settling import settle
from gradpeel.decoder.rows.solving import solve
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.decoder.simulate import Backward

__all__ = ["Isolated", "run_row_cascade"]


def run_row_cascade(
    residual: Residual,
    layer: nn.Linear | None,
    unit: Backward | None,
    *,
    change: Tensor | None = None,
    effort: float,
    on_rows: Callable[[RowCount], None] | None = None,
) -> tuple[RowCount | None, Isolated | None]:
    """Search for the rows of all unknown samples, and solve for the samples.

    Args:
        residual: what is left of the update.
        layer: the next layer, if the activations enter one directly.
        unit: the client's backward pass with a share of 1, where it can be simulated.
        change: of the next layer's weight over several local steps, up to a factor.
        effort: how long to search; 1 is enough as a rule.
        on_rows: called after every batch of seeds with how far it has come.

    Returns:
        How far it came, None where the update says nothing of rows; and the samples, where the rows
        determine them.
    """
    space = RowSpace.of(residual)
    if space is None:
        return None, None
    if not can_help(space):
        return RowCount(0, space.rank, searched=False), None
    width = 0 if layer is None else layer.out_features
    search = partial(
        find_rows,
        residual,
        space,
        weight=None if layer is None else layer.weight,
        change=change,
        directions=lambda a: directions(a, residual, width=width, backward=unit),
        effort=effort,
        on_rows=on_rows,
    )
    if residual.of_several_steps:
        found, rows = settle(search(known=read_quotients(residual, space)), residual)
        for _ in range(LIMITS.row_settle_searches):
            if found is not None or len(rows) >= space.rank:
                break
            found, rows = settle(search(known=rows), residual)
    else:
        rows = search()
        found = solve(rows, residual)
    if found is None:
        return RowCount(len(rows), space.rank), None
    # What the next layer sends back differs from step to step: samples are read without it.
    width = 0 if residual.of_several_steps else width
    return RowCount(len(rows), space.rank), isolate(found, space, residual, width=width)
