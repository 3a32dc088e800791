"""Random directions: any will do, but the same update must always decode the same way."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gaussian", "generator"]


def generator() -> torch.Generator:
    """A source of randomness that always starts alike, on the CPU: so it does for every device."""
    return torch.Generator("cpu").manual_seed(0)


def gaussian(*shape: int, like: Tensor, source: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers of the dtype and on the device of another tensor."""
    drawn = torch.randn(shape, generator=source or generator(), dtype=torch.float64, device="cpu")
    return drawn.to(like)
