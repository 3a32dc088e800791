"""Certified samples as the residual needs them: what each contributes, and how exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["SampleBlock", "typical"]


@dataclass(frozen=True, eq=False)
class SampleBlock:
    """Samples, one row each, with everything that is needed to subtract them.

    Attributes:
        coordinates: (n, width) in the residual's coordinate system.
        activations: (n, neurons) after the ReLU.
        sensitivities: (n, neurons), the c of the paper.
        next_sensitivities: (n, next width) loss gradient at the next layer's output; no columns
            where there is no next layer.
        counts: (n, classes) copies of the sample with each label; zero where that is not known.
        sample_error: (n,) relative error of the coordinates.
        sensitivity_error: (n,) relative error of the sensitivities.
        next_error: (n,) relative error of those at the next layer.
        kink: (n, neurons) sensitivity that is uncertain because its neuron is at the ReLU's kink.
        told: (n, neurons) 1 where the sample is known to fire and -1 where it is known not to,
            regardless of its pre-activation; 0 elsewhere.
    """

    coordinates: Tensor
    activations: Tensor
    sensitivities: Tensor
    next_sensitivities: Tensor
    counts: Tensor
    sample_error: Tensor
    sensitivity_error: Tensor
    next_error: Tensor
    kink: Tensor
    told: Tensor

    @classmethod
    def none(
        cls,
        *,
        width: int,
        neurons: int,
        next_width: int,
        classes: int,
        device: torch.device | None = None,
    ) -> SampleBlock:
        """No samples yet."""
        wide = {"coordinates": width, "next_sensitivities": next_width, "counts": classes}
        flat = {"sample_error", "sensitivity_error", "next_error"}
        return cls(
            **{
                field.name: torch.zeros(
                    (0,) if field.name in flat else (0, wide.get(field.name, neurons)),
                    dtype=torch.float64,
                    device=device,
                )
                for field in fields(cls)
            }
        )

    def __len__(self) -> int:
        return len(self.coordinates)

    def pick(self, index: Tensor) -> SampleBlock:
        """Some of the samples."""
        if index.dtype == torch.bool and bool(index.all()):
            return self
        return SampleBlock(
            **{field.name: getattr(self, field.name)[index] for field in fields(self)}
        )

    @classmethod
    def joined(cls, parts: Sequence[SampleBlock]) -> SampleBlock:
        """The samples of all parts, in their order."""
        return cls(
            **{
                field.name: torch.cat([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            }
        )


def typical(c: Tensor) -> Tensor:
    """(n,) root mean square of each sample's sensitivities over the neurons it fires."""
    return (c.square().sum(1) / (c != 0).sum(1).clamp(min=1)).sqrt()
