"""Inputs that were reconstructed from features, and tokens that an update names, in sentences.

Example:
    >>> import torch
    >>> leaked({"embed": torch.tensor([3, 9, 14])})
    'The gradient of embedding `embed` names 3 tokens that occurred in the batch.'
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gradpeel.inversion import Inversion
from gradpeel.reporting.layout import was
from gradpeel.reporting.words import counted, percent, printable, scientific

__all__ = ["leaked", "reconstructions"]

CONFIRMED = 1e-4
"""Mismatch of the front's gradients below which they agree."""


def reconstructions(found: Inversion) -> str:
    """How many inputs were reconstructed, what features determine, and how close they are."""
    number, sure = len(found), int(found.determined.sum())
    if not number:
        return "No feature vector was recovered, so there is nothing to reconstruct inputs from."
    is_tokens = not found.inputs.is_floating_point()
    which = {number: "all of them", 0: "none of them"}.get(sure, f"{sure:,} of them")
    made = f"{counted(number, 'input')} {was(number)} reconstructed"
    sentences = [f"{made} from certified feature vectors; these determine {which}."]
    if is_tokens and not found.ordered:
        sentences.append("The features hold which tokens occur and how often, not their order.")
    if sure < number and not is_tokens:
        free = percent(float(found.hidden[~found.determined].mean()))
        sentences.append(
            f"On average {free} of the directions of {'the others' if sure else 'an input'} do not "
            "change the features: there the range of the data and a prior decide."
        )
    sentences.append(_likeness(found, is_tokens=is_tokens))
    if found.mismatch is not None and found.mismatch <= CONFIRMED:
        sentences.append(
            "The gradients of the layers in front, to which nothing was fitted, confirm all "
            f"reconstructions to {scientific(found.mismatch)}."
        )
    return " ".join(filter(None, sentences))


def _likeness(found: Inversion, *, is_tokens: bool) -> str:
    likeness = found.likeness
    if likeness is None:
        return ""
    if is_tokens:
        return f"{int(likeness.exact.sum()):,} of {len(found):,} are the real tokens."
    known = likeness.psnr[~likeness.psnr.isnan()]
    if not len(known):
        return ""
    if likeness.median_psnr is None:
        return f"{int(likeness.exact.sum()):,} of {len(found):,} are equal to the real inputs."
    return (
        f"Compared with the real inputs, PSNR is {likeness.median_psnr:.0f} dB in the median and "
        f"at least {float(known.min()):.0f} dB."
    )


def leaked(tables: Mapping[str, Tensor]) -> str:
    """How many tokens each embedding's gradient names."""
    return " ".join(
        f"The gradient of embedding `{printable(name)}` names {counted(len(tokens), 'token')} that "
        "occurred in the batch."
        for name, tokens in tables.items()
    )
