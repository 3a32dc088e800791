"""The result of peeling, and what happens on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Recovery", "Round"]


@dataclass(frozen=True, eq=False)
class Round:
    """One iteration of the cascade.

    Attributes:
        number: 1 for the first.
        looked_at: live neurons whose candidate was formed.
        distinct: candidates left after merging.
        sources: (n,) neurons the samples certified in this round were read from.
        labels: (n,) their labels.
        fires: (n, neurons) which neurons each of them fires.
        quiet: neurons whose residual is zero after the round.
        left: norm of the residual bias after the round, relative to the update's.
    """

    number: int
    looked_at: int
    distinct: int
    sources: Tensor
    labels: Tensor
    fires: Tensor
    quiet: int
    left: float

    @property
    def certified(self) -> int:
        """Number of samples certified in this round."""
        return len(self.sources)


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything `peel` found, in the order it was found.

    Attributes:
        samples: (n, *sample_shape) recovered samples, in input space.
        labels: (n,) their labels.
        residuals: (n,) certificate residual: worst relative mismatch over the equations.
        errors: (n,) estimated error of a sample's entries relative to the typical size of one.
        chances: (n,) probability that a mixture would have passed in its place.
        equations: (n,) number of equations each certificate rests on.
        rounds: (n,) the round each fell in, from 1.
        sources: (n,) the neuron each was read from.
        isolating: for each, every neuron that isolated it at that moment.
        evidence: the kinds of evidence the certificates rest on.
        trace: the rounds.
        batch_size: the batch size the update says.
        explained: share of the update (all its layers, by norm) that the samples reproduce.
        mismatch: worst relative gap between the update and the samples' own gradient on the neurons
            that count as explained; a number far above the dtype's resolution is a warning.
        faint: the update is explained although samples are missing: their gradients are too small
            to be certified in its dtype.
        complete: the samples are as many as the batch and reproduce the whole update, all layers.
        stopped: why the cascade ended, in a sentence.
    """

    samples: Tensor
    labels: Tensor
    residuals: Tensor
    errors: Tensor
    chances: Tensor
    equations: Tensor
    rounds: Tensor
    sources: Tensor
    isolating: tuple[tuple[int, ...], ...]
    evidence: tuple[str, ...]
    trace: tuple[Round, ...]
    batch_size: int
    explained: float
    mismatch: float
    faint: bool
    complete: bool
    stopped: str

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"explains {self.explained:.1%} of the update"
        found = f"{len(self)} of {self.batch_size} samples in {self.cascade_length} rounds"
        return f"Recovery({found}, {state})"

    @cached_property
    def cascade_length(self) -> int:
        """Number of rounds that certified something."""
        return sum(1 for round_ in self.trace if round_.certified)

    def as_dict(self) -> dict[str, object]:
        """How the cascade went, as plain values for JSON; samples are not among them."""
        return {
            "rounds": self.cascade_length,
            "recovered_by_round": [round_.certified for round_ in self.trace],
            "complete": self.complete,
            "explained": self.explained,
            "mismatch": self.mismatch,
            "evidence": list(self.evidence),
            "stopped": self.stopped,
        }

    def label_counts(self, classes: int) -> Tensor:
        """(classes,) how often each label was recovered."""
        return torch.bincount(self.labels, minlength=classes)
