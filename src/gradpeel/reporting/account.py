"""What both summaries say about a recovery: how much, how certain, and by what evidence."""

from __future__ import annotations

from gradpeel.decoder import BatchSize, Recovery
from gradpeel.reporting.words import counted, percent, printable, scientific

__all__ = ["batch_size", "completeness", "copies", "evidence", "what_came_back"]


def what_came_back(recovery: Recovery, *, is_inverted: bool = False) -> str | None:
    """What the recovered things are, where they are not inputs of the network; None where they are.

    Args:
        recovery: what was recovered.
        is_inverted: whether inputs were reconstructed from it.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from gradpeel import local_update, peel
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Tanh(), nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        >>> update = local_update(model, torch.rand(4, 30), torch.arange(4) % 2)
        >>> what_came_back(peel(model, update))
        'feature vectors that enter layer `1`, 30 features each; reconstructing inputs from ...'
    """
    if recovery.space == "input":
        return None
    further = (
        "inputs were reconstructed from them"
        if is_inverted
        else "reconstructing inputs from them is a further step (`gradpeel.invert`)"
    )
    return (
        f"feature vectors that enter layer `{printable(recovery.layer, most=80)}`, "
        f"{counted(recovery.samples.shape[1], 'feature')} each; {further}"
    )


def _layer(recovery: Recovery) -> str:
    """The layer that was read, in a sentence."""
    if recovery.space == "input":
        return "the first layer"
    return f"layer `{printable(recovery.layer, most=80)}`"


def completeness(recovery: Recovery) -> str:
    """How much of the update the samples account for, and whether that proves them to be all."""
    if not len(recovery):
        return "none of it is explained"
    # A sample with unknown labels has no gradient of its own behind the target.
    everywhere = bool((recovery.multiplicities > 0).all())
    noun, layer = f"{recovery.noun}s", _layer(recovery)
    of_them = f"the gradient of the recovered {noun}"
    over = "every layer" if recovery.space == "input" else f"{layer} and every layer behind it"
    if recovery.complete and everywhere:
        return (
            f"complete and proven: {of_them} equals the update in {over}, so it contains nothing "
            "else"
        )
    if recovery.complete:
        return f"complete at {layer}: the recovered {noun} account for its whole gradient"
    gap = 1 - recovery.explained
    # Where nearly all is explained the digits are in the gap.
    share = f"all but {scientific(gap)}" if gap < 1e-3 else percent(recovery.explained)
    over = "all layers" if recovery.space == "input" else over
    what = f"it over {over}" if everywhere else f"{layer}'s"
    explained = f"{of_them} explains {share} of {what}"
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
        whole = "update" if recovery.space == "input" else f"gradient of {_layer(recovery)}"
        return (
            f"{size.proven:,}, proven: the recovered {recovery.noun}s account for the whole {whole}"
        )
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
