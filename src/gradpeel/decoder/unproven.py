"""Candidates that were read, but not certified: a server can look at them all the same.

Two looks hand them out: the first, at the update as it was sent, and the last, at what the cascade
left of it. The row cascade solves for samples that it then may not be able to certify, because
their gradients are faint. Where nobody can tell what one sample weighs, the cascade goes by what
most candidates say, and nothing that it finds is certified: then that is among them too. Most of
the others are mixtures. Which are samples only somebody who knows the batch can tell; what speaks
for a candidate is how nearly its gradient has the direction of some label's.

Nothing is computed before it is asked for.
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
    """Where candidates can be read, and what is known of them.

    Attributes:
        neurons: (n,) the neuron each is read from.
        own: (n,) what of that neuron's gradient it is.
        known: (n, found) what of samples that were found, or solved for, is taken out of it.
        mismatch: (n,) how far each is from consistent, relative; infinite where nothing tells.
        sizes: (n,) how many samples each weighs as much as, where it is the mean of a group whose
            members may lie apart; 0 where that is not known.
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
        """Promise to look when asked.

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
        """(n,) how far each is from consistent, relative; infinite where nothing tells."""
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
            index: (n,) which of them; all where not given. They are made anew with every call.
        """
        some = self._reading if index is None else self._reading.pick(index)
        rows = functional.one_hot(some.neurons, len(self._gradient)) * some.own[:, None]
        rows -= some.known @ self._seen[1]
        return self._invert(combine(rows, self._gradient).cpu())
