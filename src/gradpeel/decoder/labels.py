"""Labels where they do not simply follow from a simulated gradient.

That is so for samples that occur several times in the batch, or that the structure certified.

Copies of a sample add up to one gradient. At the logits it is

    g = M p - sum_y n_y Q[y],   M = sum_y n_y sum(Q[y]),

where n_y is the number of copies with label y and Q[y] is the target of the loss for it (e_y for
the plain cross-entropy, so that M is the number of copies). The sample is known, hence p is; for
every M the counts follow, and those that are whole numbers are the labels. The count of one label
gives M, so only a few values of M have to be tried, whatever the number of classes and their
weights.

Over several local steps neither p nor the weights are known at every step. But a sample's row is
still what the last layer sends back, c = W2^T v with v the sum of its gradients at the logits, at
the neurons that it fires throughout, as long as W2 hardly changes. And in every step only the entry
of its own label is negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.simulate import Backward, ends_at_next_layer
from gradpeel.target import Target
from gradpeel.update import Update

__all__ = ["labels_after_training", "labels_of", "last_layer", "tally"]


def tally(backward: Backward, activations: Tensor, v: Tensor, error: Tensor) -> Tensor:
    """Counts of labels that explain measured gradients at the next layer.

    A label that the network predicts with certainty has almost no gradient: copies with it that
    cannot be distinguished from none are not counted.

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
    # Labels of weight zero leave no trace: none of them is counted.
    weightless = bool((mass == 0).any())
    inverse = torch.linalg.pinv(targets) if weightless else torch.linalg.inv(targets)
    # The counts are M * slope - offset.
    slope, offset = p @ inverse, g @ inverse
    # Of the labels that few copies have, take the one with the highest probability: its count gives
    # M with the least error.
    few = torch.where(offset > 0, slope * mass, slope * mass - 1.0)
    anchor = few.argmax(1, keepdim=True)
    best = torch.zeros_like(p)
    least = p.new_full((len(p),), LIMITS.whole_count)
    for count in range(LIMITS.copies_tried + 1):
        guess = (count + offset.gather(1, anchor)) / slope.gather(1, anchor)
        whole = (guess * slope - offset).round()
        # The weight of a whole number of copies is known exactly, and must give the same numbers.
        total = (whole @ mass)[:, None]
        off = torch.maximum((total * slope - offset - whole).abs().amax(1), floor)
        fits = (whole >= 0).all(1) & (total[:, 0] > 0) & (whole.sum(1) <= LIMITS.largest_batch)
        # Prefer fewer copies: only clearly better counts replace what was found before.
        fits &= off < 0.5 * least
        best = torch.where(fits[:, None], whole, best)
        least = torch.where(fits, off, least)
    return best


def last_layer(target: Target, update: Update) -> Tensor | None:
    """(classes, neurons) the last layer's weight, on average over several local steps.

    None where it does not follow the target, or did not come with the update.
    """
    tail, name = target.tail, target.tail.next_weight_name
    if tail.unknown is not None or tail.next_layer is None or name is None:
        return None
    classes = tail(torch.zeros_like(target.bias)[None]).shape[1]
    if name not in update.gradients or classes < 2 or not ends_at_next_layer(tail, classes):
        return None
    lr = 1.0 if update.training is None else update.training.lr or 1.0
    return tail.next_layer.weight.double() - 0.5 * lr * update.gradients[name].double()


def labels_after_training(rows: Tensor, firm: Tensor, weight: Tensor) -> Tensor:
    """Labels of samples after several local steps, from their rows.

    Args:
        rows: (n, neurons) sensitivities of each sample, summed over all steps.
        firm: (n, neurons) mask of neurons that it fires throughout.
        weight: (classes, neurons) of the last layer, which follows the target.

    Returns:
        (n,) the labels; -1 where more than one entry of a fitted gradient is negative, its entries
        do not add up to zero, or it does not explain the row.
    """
    labels = torch.full((len(rows),), -1, device=rows.device)
    for i, (row, on) in enumerate(zip(rows, firm, strict=True)):
        sent_back, seen = weight[:, on].T, row[on]
        if len(seen) < 2 * weight.shape[0] or not bool(seen.any()):
            continue
        v = torch.linalg.lstsq(sent_back, seen[:, None]).solution[:, 0]
        lowest, second = v.topk(2, largest=False).values.tolist()
        explains = (sent_back @ v - seen).norm() <= LIMITS.label_misfit * seen.norm()
        alone = second >= LIMITS.label_apart * lowest
        balanced = abs(float(v.sum())) <= LIMITS.label_apart * -lowest
        if bool(explains) and lowest < 0 and alone and balanced:
            labels[i] = v.argmin()
    return labels


def labels_of(counts: Tensor) -> Tensor:
    """(n,) the most frequent label of each sample, -1 where none is known."""
    # Without any classes there is no column to look for.
    most = torch.cat([counts.new_zeros(len(counts), 1), counts], 1).argmax(1)
    return most - 1
