"""The activation board, round by round (paper, section "Which Samples Are Most at Risk")."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gradpeel.datasets import Dataset
from gradpeel.designs import TrapWeights
from gradpeel.paper.figures.frame import LETTERS, PAGE, Drawn, framed
from gradpeel.paper.figures.runs import audited, title_of, with_notes
from gradpeel.reporting.board import Board
from gradpeel.reporting.matching import evenly
from gradpeel.reporting.style import GREY, place_axes
from gradpeel.reporting.words import counted, listing

__all__ = ["board"]

PANELS = 4
"""The start and up to three rounds, side by side."""
LEFT, GAP, ABOVE, BELOW, HEIGHT = 0.22, 0.1, 0.17, 0.22, 2.9
"""Inches: for the axis label, between two panels, for a panel's title, for what is below it, and
the panel itself."""


def board(
    dataset: Dataset,
    *,
    batch_size: int = 256,
    neurons: int = 1024,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
) -> Drawn:
    """Draw the activation grid at the start and after the rounds of a cascade.

    Of a cascade of more than three rounds, three are drawn, evenly spaced, first and last included;
    the caption counts all.

    Args:
        dataset: what the batch is drawn from; the paper shows CIFAR-10.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        seed: seeds the network.
        notes: how data differs from the paper's, by its name; ends the caption.
    """
    design = TrapWeights(scale=1.0, construction="independent")
    found = audited(dataset, design, batch_size=batch_size, neurons=neurons, seed=seed)
    drawn = Board(found)
    last = int(drawn.rounds.max())
    removed = [drawn.recovered(number) for number in range(1, last + 1)]
    replayed = np.bincount(found.exposure.rounds.numpy(), minlength=1)[1:].tolist()
    total = sum(removed)
    caption = with_notes(
        f"{title_of(dataset.name)}, N = {neurons}, B = {batch_size}, independent trap weights, "
        f"s = {design.scale:.2f}. {_told(removed, batch_size)} {total} of {batch_size} in all "
        f"({total / batch_size:.3f}){_compared(removed, replayed)}. Dark: the neuron fires; "
        "tinted: the sample is recovered in this round; dot: a neuron it is read from; "
        "grey: recovered before.",
        notes,
        dataset.name,
    )
    shown = [0, *(evenly(1, last, PANELS - 1) if last else [])]
    width = (PAGE - LEFT + GAP / 2) / PANELS - GAP
    figure, top = framed(
        PAGE, ABOVE + HEIGHT + BELOW, "One gradient, peeled round by round", caption
    )
    for column, number in enumerate(shown):
        left = LEFT + column * (width + GAP)
        axes = place_axes(figure, left, top + ABOVE, width, HEIGHT)
        drawn.draw(axes, number, dot=2.5)
        if number:
            title = f"round {number}: {drawn.recovered(number)} recovered"
            below = f"{drawn.known(number)} of {batch_size} recovered"
        else:
            title, below = "start", f"{counted(batch_size, 'sample')}, atypical right"
        axes.set_title(title, size=LETTERS, pad=3)
        axes.set_xlabel(below, size=LETTERS, color=GREY, labelpad=3)
        if column == 0:
            neurons_label = f"{counted(neurons, 'neuron')}, densest on top"
            axes.set_ylabel(neurons_label, size=LETTERS, color=GREY)
    numbers: dict[str, object] = {
        "batch_size": batch_size,
        "neurons": neurons,
        "removed_by_round": removed,
        "removed_by_round_on_the_grid": replayed,
        "recovered": total,
        "recovery_rate": total / batch_size,
        "false_certificates": found.score.false_certificates,
        "rounds_shown": shown[1:],
    }
    return Drawn(figure, caption, numbers)


def _told(removed: list[int], batch_size: int) -> str:
    if not removed:
        return "The cascade does not start:"
    rounds = counted(len(removed), "round")
    end = "" if sum(removed) == batch_size else ", then stalls"
    return f"The cascade removes {listing(removed, most=30)} samples in {rounds}{end}:"


def _compared(removed: list[int], replayed: list[int]) -> str:
    if removed == replayed:
        return ", just as peeling the grid alone does"
    return f"; peeling the grid alone removes {listing(replayed, most=30) or 'none'}"
