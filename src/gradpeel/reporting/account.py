"""What both summaries say about a recovery: how much, how certain, and by what evidence."""

from __future__ import annotations

from gradpeel.decoder import BatchSize, Recovery
from gradpeel.reporting.words import counted, percent, scientific

__all__ = ["batch_size", "completeness", "copies", "evidence"]


def completeness(recovery: Recovery) -> str:
    """How much of the update the samples account for, and whether that proves them to be all."""
    if not len(recovery):
        return "none of it is explained"
    # A sample with unknown labels has no gradient of its own behind the target.
    everywhere = bool((recovery.multiplicities > 0).all())
    if recovery.complete and everywhere:
        return (
            "complete and proven: the gradient of the recovered samples equals the update in every "
            "layer, so it contains nothing else"
        )
    if recovery.complete:
        return "complete at the first layer: the recovered samples account for its whole gradient"
    gap = 1 - recovery.explained
    # Where nearly all is explained the digits are in the gap.
    share = f"all but {scientific(gap)}" if gap < 1e-3 else percent(recovery.explained)
    what = "it over all layers" if everywhere else "the first layer's"
    explained = f"the gradient of the recovered samples explains {share} of {what}"
    if recovery.faint:
        missing = "the missing samples are" if recovery.batch_size.value else "anything else is"
        return f"{explained}; {missing} too faint to be certified"
    if recovery.found == recovery.batch_size.value:
        return f"not proven complete: {explained}"
    return f"not complete: {explained}"


def batch_size(recovery: Recovery) -> str:
    """The batch size, and what supports it."""
    size = recovery.batch_size
    stated, weight = size.stated, size.by_weight
    if size.proven is not None:
        return f"{size.proven:,}, proven: the recovered samples account for the whole update"
    if stated is None and weight is not None:
        return f"{weight:,}, estimated from the weight of one sample; scaling would change it"
    if stated is None:
        least = f"at least {size.least:,}" if size.least else "unknown"
        return f"{least}; it is not stated, and the update does not reveal it"
    return _stated(size, stated)


def _stated(size: BatchSize, stated: int) -> str:
    """What the update says about the size it states."""
    if size.is_refuted:
        return f"not {stated:,} as stated: {counted(size.least, 'sample')} are certified"
    if size.is_confirmed:
        return f"{stated:,} as stated; the weight of one sample agrees"
    if size.by_weight is None:
        return f"{stated:,} as stated; nothing in the update confirms it"
    return (
        f"{stated:,} as stated, but the weight of one sample suggests {size.by_weight:,}: either "
        "the stated size is wrong or the update was scaled"
    )


def copies(recovery: Recovery) -> str | None:
    """Which samples occur more than once; None where it is known that none does."""
    several = int((recovery.multiplicities > 1).sum())
    unknown = int((recovery.multiplicities == 0).sum())
    known = []
    if several:
        occur = "occurs" if several == 1 else "occur"
        known.append(f"{counted(several, 'sample')} {occur} in the batch more than once")
    if unknown:
        known.append(f"the number of copies is unknown for {counted(unknown, 'sample')}")
    return "; ".join(known) or None


def evidence(recovery: Recovery) -> str:
    """The kinds of evidence, each with the number of samples that carry it."""
    kinds = []
    for word in recovery.kinds:
        carry = sum(word in kinds.words for kinds in recovery.evidence)
        share = "all samples" if carry == len(recovery) else counted(carry, "sample")
        kinds.append(f"{word} ({share})")
    return ", ".join(kinds)
