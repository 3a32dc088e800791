"""What both summaries say about a recovery: how much, how sure, and by what evidence."""

from __future__ import annotations

from gradpeel.decoder import Recovery
from gradpeel.report.words import counted, percent, scientific

__all__ = ["batch_size", "completeness", "copies", "evidence"]


def completeness(recovery: Recovery) -> str:
    """How much of the update the samples account for, and whether that proves them to be all."""
    if not len(recovery):
        return "nothing of it is explained"
    # A sample with unknown labels has no gradient of its own behind the target.
    everywhere = bool((recovery.multiplicities > 0).all())
    if recovery.complete and everywhere:
        return (
            "complete, and proven: the samples' own gradient is the update, in all its layers; "
            "nothing else is in it"
        )
    if recovery.complete:
        return "complete at the target: the samples make up all of its gradient"
    gap = 1 - recovery.explained
    # Where nearly all is explained the digits are in the gap.
    share = f"all but {scientific(gap)}" if gap < 1e-3 else percent(recovery.explained)
    what = "it, over all layers" if everywhere else "the target's"
    explained = f"the samples' own gradient explains {share} of {what}"
    if recovery.faint:
        missing = "what is missing" if recovery.batch_size else "anything more in it"
        return f"{explained}; {missing} is too faint to be certified"
    if recovery.found == recovery.batch_size:
        return f"not proven complete: {explained}"
    return f"not complete: {explained}"


def batch_size(recovery: Recovery) -> str:
    """The batch size, who says it, and how many samples speak for it."""
    size, stated, votes = recovery.batch_size, recovery.stated_batch_size, recovery.batch_votes
    if size is None:
        return "not known: nobody states it, and nothing in the update tells"
    agree = f" ({counted(votes, 'sample')} agree{'s' * (votes == 1)})" if votes else ""
    if stated is None and not votes:
        return f"{size} by the rank of the update, copies counted once"
    if stated is None:
        return f"{size}, found in the update{agree}"
    if stated != size:
        return f"{size}, found in the update{agree}, not {stated} as stated"
    return f"{size}, as stated{agree}"


def copies(recovery: Recovery) -> str | None:
    """Who stands in the batch more than once; None where it is known that nobody does."""
    several = int((recovery.multiplicities > 1).sum())
    unknown = int((recovery.multiplicities == 0).sum())
    told = []
    if several:
        stand = "stands" if several == 1 else "stand"
        told.append(f"{counted(several, 'sample')} {stand} in the batch more than once")
    if unknown:
        told.append(f"of {counted(unknown, 'sample')} it is not known how many there are")
    return "; ".join(told) or None


def evidence(recovery: Recovery) -> str:
    """The kinds of evidence, each with the number of samples that carry it."""
    told = []
    for word in recovery.kinds:
        carry = sum(word in kinds.words for kinds in recovery.evidence)
        told.append(f"{word} for {'all' if carry == len(recovery) else carry}")
    return ", ".join(told)
