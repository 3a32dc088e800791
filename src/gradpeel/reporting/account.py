"""What both summaries say about a recovery: how much, how sure, and by what evidence."""

from __future__ import annotations

from gradpeel.decoder import BatchSize, Recovery
from gradpeel.reporting.words import counted, percent, scientific

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
        missing = "what is missing" if recovery.batch_size.value else "anything more in it"
        return f"{explained}; {missing} is too faint to be certified"
    if recovery.found == recovery.batch_size.value:
        return f"not proven complete: {explained}"
    return f"not complete: {explained}"


def batch_size(recovery: Recovery) -> str:
    """The batch size, and what it rests on."""
    size = recovery.batch_size
    stated, weight = size.stated, size.by_weight
    if size.proven is not None:
        return f"{size.proven}, proven: the samples found make up the whole update"
    if stated is None and weight is not None:
        return f"{weight} by the weight of one sample, if the update was not scaled"
    if stated is None:
        least = f"at least {size.least}" if size.least else "not known"
        return f"{least}: it is not stated, and the update does not reveal it"
    return _stated(size, stated)


def _stated(size: BatchSize, stated: int) -> str:
    """What the update says of the size that it states."""
    if size.is_refuted:
        return f"not {stated} as stated: {counted(size.least, 'sample')} are certified"
    if size.is_confirmed:
        return f"{stated}, as stated; the weight of one sample agrees"
    if size.by_weight is None:
        return f"{stated}, as stated; nothing in the update confirms it"
    return (
        f"{stated}, as stated; the weight of one sample suggests {size.by_weight}, "
        "so the size is wrong or the update was scaled"
    )


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
