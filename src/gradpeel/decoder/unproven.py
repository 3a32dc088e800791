"""Candidates that were read but not certified: a server can look at them nevertheless.

Two examinations yield them: the first, of the update as it was sent, and the last, of what the
cascade left of it. The row cascade solves for samples that it may be unable to certify, because
their gradients are faint. Where the weight of one sample cannot be determined, the cascade uses the
value that most candidates agree on and certifies nothing that it finds: its samples are then among
these. Most of the others are mixtures. Which ones are samples can only be decided by somebody who
knows the batch; the evidence for a candidate is how close its gradient is to the direction of some
label's.

Nothing is computed before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.linalg import combine

__all__ = ["Reading", "Unproven"]


@dataclass(frozen=True, eq=False)
class Reading:
    """Where candidates can be read, and what is known about them.

    Attributes:
        neurons: (n,) the neuron each is read from.
        own: (n,) its share of that neuron's gradient.
        known: (n, found) how much of each sample that was found, or solved for, is subtracted.
        mismatch: (n,) how far each is from consistent, relative; infinite where it is unknown.
        sizes: (n,) how many samples each weighs as much as, where it is the mean of a group whose
            members may differ; 0 where that is not known.
        radii: (n,) how far such members may be from their mean, relative to the typical size of a
            sample; infinite where nothing bounds it.
    """

    neurons: Tensor
    own: Tensor
    known: Tensor
    mismatch: Tensor
    sizes: Tensor
    radii: Tensor

    def pick(self, index: Tensor) -> Reading:
        """Some of them."""
        return Reading(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def joined(cls, *parts: Reading) -> Reading:
        """The candidates of all parts."""
        return cls(*(torch.cat([getattr(p, field.name) for p in parts]) for field in fields(cls)))


class Unproven:
    """Candidates that were not certified, the most credible first."""

    def __init__(
        self,
        look: Callable[[], tuple[Reading, Tensor]],
        *,
        gradient: Tensor,
        invert: Callable[[Tensor], Tensor],
    ) -> None:
        """Prepare to find the candidates when they are needed.

        Args:
            look: finds the candidates, ranked; with (found, neurons) the samples that were found,
                or solved for, as combinations of the rows of the gradient.
            gradient: (neurons, features) the target's weight gradient, as it was sent.
            invert: turns rows at the target's input into samples.
        """
        self._look = look
        self._gradient = gradient
        self._invert = invert

    @cached_property
    @torch.no_grad()
    def _seen(self) -> tuple[Reading, Tensor]:
        return self._look()

    @property
    def _reading(self) -> Reading:
        return self._seen[0]

    def __len__(self) -> int:
        return len(self._reading.neurons)

    def __repr__(self) -> str:
        return f"Unproven({len(self)} candidates, {int((self.sizes > 1).sum())} of them groups)"

    @property
    def neurons(self) -> Tensor:
        """(n,) the neuron each is read from."""
        return self._reading.neurons.cpu()

    @property
    def mismatch(self) -> Tensor:
        """(n,) how far each is from consistent, relative; infinite where it is unknown."""
        return self._reading.mismatch.cpu()

    @property
    def sizes(self) -> Tensor:
        """(n,) the number of samples in a group whose mean this is; 0 where that is not known."""
        return self._reading.sizes.cpu()

    @property
    def radii(self) -> Tensor:
        """(n,) how far members of such a group may be from the mean, see `Reading`."""
        return self._reading.radii.cpu()

    @torch.no_grad()
    def samples(self, index: Tensor | None = None) -> Tensor:
        """The candidates themselves, (n, *sample_shape).

        Args:
            index: (n,) which of them; by default all. They are computed again with every call.
        """
        some = self._reading if index is None else self._reading.pick(index)
        rows = functional.one_hot(some.neurons, len(self._gradient)) * some.own[:, None]
        rows -= some.known @ self._seen[1]
        return self._invert(combine(rows, self._gradient).cpu())
