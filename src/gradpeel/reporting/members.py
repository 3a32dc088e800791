"""Which samples of an audit are shown to have taken part, in sentences.

Example:
    >>> import numpy as np
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> found = audit(mlp(30, 2, (200,), rng=np.random.default_rng(0)), batch.x, batch.y)
    >>> membership(found)
    'The update shows that all 4 samples took part. Even where a sample cannot be read, the ...'
"""

from __future__ import annotations

from collections import Counter

from gradpeel.audit import Audit
from gradpeel.membership import Membership
from gradpeel.reporting.tally import Way, ways
from gradpeel.reporting.words import counted

__all__ = ["membership"]

_MEANING = (
    "Even where a sample cannot be read, the server can test whether a record that it already "
    "holds took part."
)


def membership(audit: Audit) -> str:
    """What the update shows of the samples' membership, and what that means.

    It comes from a test that decodes nothing, see `gradpeel.contains`.
    """
    if audit.refuses_membership:
        return (
            "Membership was not tested: what stands in front of the layer changes from batch to "
            "batch, so that a record does not look there as it did to the client."
        )
    found, each = audit.membership, audit.rows_per_sample
    rows = [way is not Way.MISSED for way in ways(audit)]
    # Whoever has a token that was read took part.
    is_read = [any(rows[first : first + each]) for first in range(0, len(rows), each)]
    read = Counter(verdict for verdict, was in zip(found.verdicts, is_read, strict=True) if was)
    inside, outside, unknown = (found.count(verdict) for verdict in ("in", "out", "unknown"))
    sentences = []
    if inside:
        hidden = inside - read["in"]
        whom = "" if hidden == inside else f"{hidden:,} of them "
        although = f", {whom}although the attack did not read them" if hidden else ""
        sentences.append(f"The update shows that {_of(inside, len(found))} took part{although}.")
    if outside:
        sentences.append(f"It shows that {counted(outside, 'sample')} did not take part.")
    if unknown and unknown == read["unknown"]:
        who = _of(unknown, len(found))
        was = "was read, so it" if len(found) == 1 else "were read, so they"
        sentences.append(
            f"{who[0].upper()}{who[1:]} {was} took part. The test that recognises a record without "
            f"reading it cannot decide here: {_why(found)}."
        )
    elif unknown:
        whom = "" if unknown == len(found) else f" for {counted(unknown, 'sample')}"
        sentences.append(f"The membership test cannot decide{whom}: {_why(found)}.")
        if read["unknown"]:
            sentences.append("Samples that were read took part in any case.")
    if inside:
        sentences.append(_MEANING)
    return " ".join(sentences)


def _of(number: int, total: int) -> str:
    if number == total:
        return "the only sample" if total == 1 else f"all {total:,} samples"
    return f"{number:,} of {counted(total, 'sample')}"


def _why(found: Membership) -> str:
    """Why samples are undecided; of several reasons the most frequent one."""
    reasons = Counter(reason for reason in found.reasons if reason is not None)
    (reason, number), *others = reasons.most_common()
    return f"{reason} ({number:,} of {reasons.total():,} cases)" if others else reason
