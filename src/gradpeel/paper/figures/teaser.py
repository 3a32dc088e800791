"""Samples above what one gradient gave away of them (paper, figure in "Introduction")."""

from __future__ import annotations

from collections.abc import Mapping

from gradpeel.datasets import Dataset
from gradpeel.designs import Passive
from gradpeel.paper.figures.frame import COLUMN, Drawn, framed
from gradpeel.paper.figures.runs import audited, check_pictures, title_and_size, with_notes
from gradpeel.reporting.captions import verdict, which
from gradpeel.reporting.matching import evenly, rounds_of
from gradpeel.reporting.samples import PairLayout, draw_pairs

__all__ = ["teaser"]

COLUMNS, PAIRS = 4, 2
LEFT, GAP = 0.26, 0.05
SIDE = (COLUMN - LEFT - GAP * COLUMNS) / COLUMNS
ABOVE, PAIR = 0.14, 2 * SIDE + GAP + 0.38
"""Inches: for the first labels, from one pair of rows to the next."""


def teaser(
    dataset: Dataset,
    *,
    batch_size: int = 128,
    neurons: int = 1000,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw original pictures and what a server that only watches rebuilds from one gradient.

    The samples shown are evenly spaced over the batch, not chosen by how well they came out.

    Args:
        dataset: pictures; the paper shows ImageNet.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        seed: seeds the network.
        notes: how data differs from the paper's, by its name; ends the caption.

    Raises:
        InputError: the samples are not pictures, or too few.
    """
    check_pictures(dataset)
    found = audited(dataset, Passive("gaussian"), batch_size=batch_size, neurons=neurons, seed=seed)
    chosen = evenly(0, batch_size - 1, COLUMNS * PAIRS)
    caption = with_notes(
        f"{title_and_size(dataset)}, one FedSGD round of B = {batch_size} on an untouched "
        f"network of N = {neurons} (passive server); {which(found, len(chosen))}.",
        notes,
        dataset.name,
    )
    rows = -(-len(chosen) // COLUMNS)
    figure, top = framed(COLUMN, ABOVE + PAIR * rows - 0.12, verdict(found), caption)
    layout = PairLayout(
        left=LEFT, top=top + ABOVE, side=SIDE, gap=GAP, pair=PAIR, letters=6.5, name=16
    )
    draw_pairs(figure, found, dataset, chosen, columns=COLUMNS, layout=layout)
    rounds = rounds_of(found)
    return Drawn(
        figure,
        caption,
        {
            "design": found.design.name,
            "batch_size": batch_size,
            "neurons": neurons,
            "recovered": found.score.recovered,
            "labels_right": int(found.score.labels_right.sum()),
            "false_certificates": found.score.false_certificates,
            "removed_by_round": found.recovery.by_round,
            "max_abs_error": found.score.max_abs_error,
            "shown": chosen,
            "shown_rounds": [int(rounds[sample]) for sample in chosen],
        },
    )
