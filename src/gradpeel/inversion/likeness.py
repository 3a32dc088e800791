"""How close reconstructions are to the real inputs, which only an audit knows.

Example:
    >>> x = torch.rand(3, 1, 8, 8)
    >>> found = compare(x, torch.tensor([2, 0]), x[[2, 0]] + 1e-3)
    >>> found.samples.tolist(), bool((found.psnr > 50).all()), bool((found.ssim > 0.99).all())
    ([2, 0], True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.checks import finite_or_none
from gradpeel.reporting.images import as_pictures, psnr, ssim

__all__ = ["Likeness", "compare"]


@dataclass(frozen=True, eq=False)
class Likeness:
    """Reconstructions compared with the inputs of a batch.

    Attributes:
        samples: (n,) place in the batch of the input that each is a reconstruction of; -1 where
            its features are none of the batch's.
        exact: (n,) whether it is equal to that input; for tokens without order, up to the order.
        psnr: (n,) peak signal-to-noise ratio in decibels, by the range of values in the batch;
            infinite where they are equal, NaN for tokens and where there is no such input.
        ssim: (n,) structural similarity of pictures; NaN elsewhere.
    """

    samples: Tensor
    exact: Tensor
    psnr: Tensor
    ssim: Tensor

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON; null where they are not finite numbers."""
        return {
            "samples": self.samples.tolist(),
            "exact": int(self.exact.sum()),
            "psnr": [finite_or_none(value) for value in self.psnr.tolist()],
            "ssim": [finite_or_none(value) for value in self.ssim.tolist()],
            "median_psnr": self.median_psnr,
        }

    @property
    def median_psnr(self) -> float | None:
        """Median over all that can be compared; None where none can, or half of them are equal."""
        known = self.psnr[~self.psnr.isnan()]
        return (
            finite_or_none(float(known.quantile(0.5, interpolation="higher")))
            if len(known)
            else None
        )


def compare(x: Tensor, samples: Tensor, inputs: Tensor, *, ordered: bool = True) -> Likeness:
    """Compare reconstructions with the inputs of a batch.

    Args:
        x: (batch, *sample_shape) the inputs.
        samples: (n,) which of them each reconstruction belongs to; -1 for none.
        inputs: (n, *sample_shape) the reconstructions.
        ordered: whether the order of tokens is known.
    """
    true, found = x.detach().cpu().flatten(1), inputs.detach().cpu().flatten(1)
    is_tokens = not found.is_floating_point()
    exact = torch.zeros(len(found), dtype=torch.bool)
    likeness = torch.full((2, len(found)), math.nan, dtype=torch.float64)
    span = 0.0 if is_tokens else float(true.max() - true.min())
    originals, pictures = (as_pictures(of) for of in (x, inputs)) if len(found) else (None, None)
    for place, sample in enumerate(samples.tolist()):
        if sample < 0:
            continue
        one, other = true[sample], found[place]
        if is_tokens:
            both = (one, other) if ordered else (one.sort().values, other.sort().values)
            exact[place] = torch.equal(both[0].long(), both[1])
            continue
        exact[place] = torch.equal(one.to(other), other)
        decibels = psnr(one.double().numpy(), other.double().numpy(), span)
        likeness[0, place] = math.inf if decibels is None else decibels
        if originals is not None and pictures is not None:
            likeness[1, place] = ssim(originals[sample], pictures[place], span)
    return Likeness(samples, exact, likeness[0], likeness[1])
