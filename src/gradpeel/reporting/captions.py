"""What figures say about a batch and about one sample of it."""

from __future__ import annotations

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.reporting.rounds import what_was_sent
from gradpeel.reporting.style import GREY, VERMILLION
from gradpeel.reporting.words import counted, printable, scientific

__all__ = ["fate", "true_class", "verdict", "which"]


def verdict(audit: Audit) -> str:
    """The title of a figure that shows samples."""
    score = audit.score
    some = f"{score.recovered} of {counted(score.batch_size, audit.recovery.noun)}"
    return f"{some} recovered from {what_was_sent(audit)}"


def which(audit: Audit, shown: int) -> str:
    """The line below it: which samples are shown, and the largest error of all recovered ones."""
    score = audit.score
    some = "all" if shown == score.batch_size else f"{shown} of {score.batch_size}, evenly spaced"
    shows = f"shown: {some}; originals above, recovered {audit.recovery.noun}s below"
    if score.max_abs_error is None:
        return shows
    return f"{shows}; largest error of any entry {scientific(score.max_abs_error)}"


def true_class(audit: Audit, dataset: Dataset, sample: int, *, most: int = 14) -> str:
    """What the label of a sample of the batch is called; empty where the batch has none."""
    if audit.y.is_floating_point():
        return ""
    return _class_name(dataset, int(audit.y[sample // audit.rows_per_sample]), most)


def _class_name(dataset: Dataset, label: int, most: int = 14) -> str:
    name = str(label) if dataset.class_names is None else dataset.class_names[label]
    # WordNet's names are lists of synonyms; the first one says it.
    return printable(name.partition(",")[0], most=most)


def fate(audit: Audit, dataset: Dataset, place: int) -> tuple[str, str]:
    """What became of a sample, and the colour to say it in.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from.
        place: where in the recovery the sample is, or -1.
    """
    if place < 0:
        return "not recovered", GREY
    if audit.score.labels_judged[place] and not audit.score.labels_right[place]:
        return f"mistaken for {_class_name(dataset, int(audit.recovery.labels[place]))}", VERMILLION
    return f"round {int(audit.recovery.rounds[place])}", "black"
