"""Samples that fire exactly the same neurons: the structure cannot exclude their mixtures.

Their sensitivities vanish at the same neurons, so all combinations of them lie in the column space
of the update as well. What exposes them: as soon as no other sample is left at their neurons, each
of these yields another mixture, and all fire alike. For the same reason a reading that fires
exactly as a known sample does is never a new sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.sample_block import SampleBlock

__all__ = ["Alike", "fire_alike"]


@dataclass(frozen=True, eq=False)
class Alike:
    """Which samples fire exactly the same neurons as another.

    Attributes:
        new: (n,) which new samples fire as a sample that is not the same.
        again: (n,) which of them fire as a known one, or one before them.
        known: (m,) which known samples fire as a sample that is not the same.
    """

    new: Tensor
    again: Tensor
    known: Tensor


def fire_alike(new: SampleBlock, known: SampleBlock, scale: float) -> Alike:
    """Find samples that fire the same neurons as another, but are not the same.

    Args:
        new: samples about to be accepted.
        known: samples accepted before.
        scale: typical size of a sample's coordinates.
    """
    everybody = SampleBlock.joined([known, new])
    alike = torch.zeros_like(everybody.sample_error, dtype=torch.bool)
    again = torch.zeros_like(alike)
    for group in _groups(everybody.activations > 0):
        vectors, error = everybody.coordinates[group], everybody.sample_error[group]
        apart = torch.cdist(vectors, vectors) / max(vectors.shape[1], 1) ** 0.5
        both = torch.maximum(error[:, None], error)
        different = apart > torch.clamp(LIMITS.slack * both, min=LIMITS.same_reading) * scale
        alike[group] = different.any(1)
        again[group[1:]] = True
    first = len(known)
    return Alike(new=alike[first:], again=again[first:], known=alike[:first])


def _groups(fires: Tensor) -> list[Tensor]:
    """Indices of rows that are equal, for every row that occurs more than once."""
    found: dict[bytes, list[int]] = {}
    for i, row in enumerate(fires.numpy(force=True)):
        found.setdefault(row.tobytes(), []).append(i)
    groups = [group for group in found.values() if len(group) > 1]
    return [torch.tensor(group, device=fires.device) for group in groups]
