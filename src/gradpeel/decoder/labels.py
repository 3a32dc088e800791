"""Labels of samples that stand in the batch more than once, or that the structure certified.

Copies of a sample add up to one gradient. At the logits it is

    g = M p - sum_y n_y Q[y],   M = sum_y n_y sum(Q[y]),

where n_y is the number of copies with label y and Q[y] what the loss asks for it (e_y for the plain
cross-entropy, so that M is the number of copies). The sample is known, so p is; for every M the
counts follow, and those that are whole numbers are the labels. The count of one label gives M, so a
few values of M have to be tried, however many classes there are and whatever each of them weighs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.simulate import Backward

__all__ = ["labels_of", "tally"]


def tally(backward: Backward, activations: Tensor, v: Tensor, error: Tensor) -> Tensor:
    """Counts of labels that explain measured gradients at the next layer.

    A label that the network is sure of has next to no gradient: copies with it that are not to be
    told from none are not counted.

    Args:
        backward: the client's backward pass behind the target.
        activations: (n, neurons) of each sample.
        v: (n, next width) measured.
        error: (n,) relative error of v.

    Returns:
        (n, classes) copies with each label, all zero where no whole numbers come out.
    """
    targets = backward.targets
    p, g = backward.at_logits(activations, v)
    floor = LIMITS.slack * error * g.abs().amax(1)
    mass = targets.sum(1)
    # Labels that weigh nothing leave no trace: none of them is counted.
    weightless = bool((mass == 0).any())
    inverse = torch.linalg.pinv(targets) if weightless else torch.linalg.inv(targets)
    # The counts are M * slope - offset.
    slope, offset = p @ inverse, g @ inverse
    # Of the labels that few copies have, the one that the network finds likeliest: its count gives
    # M with the least error.
    few = torch.where(offset > 0, slope * mass, slope * mass - 1.0)
    anchor = few.argmax(1, keepdim=True)
    best = torch.zeros_like(p)
    least = p.new_full((len(p),), LIMITS.whole_count)
    for count in range(LIMITS.copies_tried + 1):
        guess = (count + offset.gather(1, anchor)) / slope.gather(1, anchor)
        whole = (guess * slope - offset).round()
        # What whole numbers of copies weigh is known exactly, and must give the same numbers.
        total = (whole @ mass)[:, None]
        off = torch.maximum((total * slope - offset - whole).abs().amax(1), floor)
        fits = (whole >= 0).all(1) & (total[:, 0] > 0)
        # In case of doubt the fewer: only clearly better ones replace what was found before.
        fits &= off < 0.5 * least
        best = torch.where(fits[:, None], whole, best)
        least = torch.where(fits, off, least)
    return best


def labels_of(counts: Tensor) -> Tensor:
    """(n,) the most frequent label of each sample, -1 where none is known."""
    # Without any classes there is no column to look for.
    most = torch.cat([counts.new_zeros(len(counts), 1), counts], 1).argmax(1)
    return most - 1
