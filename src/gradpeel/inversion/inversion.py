"""What a reconstruction holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.inversion.likeness import Likeness

__all__ = ["Inversion"]


@dataclass(frozen=True, eq=False, repr=False)
class Inversion:
    """Inputs reconstructed from features, in the order of the features.

    A reconstruction is not a certificate. What is certified are the features; `determined` says
    that they leave no room around the reconstruction, not that no other input far away has them.

    Attributes:
        layer: name of the layer whose features these are.
        inputs: (n, *sample_shape) the reconstructions; int64 where they are tokens.
        residuals: (n,) distance of their features from the given ones, relative to these.
        starts: (n,) the start that each came from, 0 for the first.
        determined: (n,) whether its features are those given, to rounding, *and* no direction can
            be changed without changing them. For tokens: whether no other tokens have them.
        hidden: (n,) estimated share of the directions of an input that do not change its features.
        ordered: whether the order of tokens is known; a sum or mean of embeddings has none.
        mismatch: relative distance between the front's own gradients in the update and those of
            the reconstructions; None where the batch is not recovered completely, or the update
            was not given. At rounding it confirms all reconstructions at once.
        seconds: how long it took.
        likeness: how close each is to the real input, in an audit; None elsewhere.
    """

    layer: str
    inputs: Tensor
    residuals: Tensor
    starts: Tensor
    determined: Tensor
    hidden: Tensor
    ordered: bool = True
    mismatch: float | None = None
    seconds: float = 0.0
    likeness: Likeness | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return (
            f"Inversion({len(self)} reconstructions from features of layer {self.layer!r}, "
            f"{int(self.determined.sum())} determined)"
        )

    @classmethod
    def joined(cls, parts: Sequence[Inversion], layer: str, shape: tuple[int, ...]) -> Inversion:
        """Several of them as one; none where there are no parts."""
        if not parts:
            none = torch.zeros(0, dtype=torch.float64)
            whole = torch.zeros(0, dtype=torch.int64)
            return cls(layer, none.reshape(0, *shape), none, whole, whole.bool(), none)
        return cls(
            layer=layer,
            inputs=torch.cat([part.inputs for part in parts]),
            residuals=torch.cat([part.residuals for part in parts]),
            starts=torch.cat([part.starts for part in parts]),
            determined=torch.cat([part.determined for part in parts]),
            hidden=torch.cat([part.hidden for part in parts]),
        )

    def finished(self, mismatch: float | None, seconds: float) -> Inversion:
        """The same with what is known at the end."""
        return replace(self, mismatch=mismatch, seconds=seconds)

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON, without any inputs."""
        return {
            "layer": self.layer,
            "reconstructions": len(self),
            "determined": int(self.determined.sum()),
            "residuals": self.residuals.tolist(),
            "hidden": self.hidden.tolist(),
            "starts": self.starts.tolist(),
            "ordered": self.ordered,
            "mismatch": self.mismatch,
            "seconds": self.seconds,
            **({} if self.likeness is None else self.likeness.as_dict()),
        }
