"""The result of peeling, and what happens on the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Evidence", "Recovery", "Round"]


@dataclass(frozen=True, eq=False)
class Round:
    """One iteration of the cascade.

    Attributes:
        number: 1 for the first.
        looked_at: live neurons whose candidate was formed.
        distinct: candidates left after merging.
        sources: (n,) neurons the samples certified in this round were read from.
        labels: (n,) their labels, -1 where unknown.
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


class Evidence(Flag):
    """What speaks for a certified sample."""

    BIAS = 1
    NEXT_LAYER = 2
    STRUCTURE = 4
    FOLLOWERS = 8
    RANGE = 16

    @property
    def words(self) -> tuple[str, ...]:
        """The kinds as a report names them."""
        return tuple(_WORDS[kind] for kind in self)


_WORDS = {
    Evidence.BIAS: "bias equation",
    Evidence.NEXT_LAYER: "next layer",
    Evidence.STRUCTURE: "structure",
    Evidence.FOLLOWERS: "what follows from it",
    Evidence.RANGE: "data range",
}


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything `peel` found, in the order it was found.

    Attributes:
        samples: (n, *sample_shape) recovered samples, in input space.
        labels: (n,) their labels, of several the most frequent; -1 where unknown.
        multiplicities: (n,) how many copies of each the batch holds; 0 where unknown.
        label_counts: for each the number of copies by label; empty where unknown.
        residuals: (n,) certificate residual: worst relative mismatch over the equations.
        errors: (n,) estimated root-mean-square error of a sample's entries, relative to the typical
            size of one.
        chances: (n,) probability that a mixture would have passed in its place.
        equations: (n,) number of equations each certificate rests on.
        evidence: for each the kinds of evidence its certificate rests on.
        rounds: (n,) the round each fell in, from 1.
        sources: (n,) the neuron each was read from.
        isolating: for each, the neurons that handed it out at that moment; not always all of them
            that isolate it on the grid.
        trace: the rounds.
        batch_size: number of samples in the batch, as stated or as found; where tail and batch size
            are unknown, of distinct ones; None where nothing tells.
        stated_batch_size: the batch size the update says, if it says one.
        batch_votes: how many samples were certified by a scale that only this batch size has; 0
            where the scale says nothing of it.
        rank: number of distinct samples the update is made of at least, where that was asked for.
        explained: share of the update (all layers from the target on, by norm; the target alone
            where the tail is unknown) that the samples reproduce, as random directions show.
        mismatch: worst relative gap between the update and the samples' own gradient on the neurons
            that count as explained; a number far above the dtype's resolution is a warning.
        faint: the update is explained although samples are missing: their gradients are too small
            to be certified in its dtype.
        complete: the samples are as many as the batch and reproduce the whole update, all layers
            from the target on; where the tail is unknown, the target's gradient.
        stopped: why the cascade ended, in a sentence.
        warnings: what does not fit together, a sentence each.
    """

    samples: Tensor
    labels: Tensor
    multiplicities: Tensor
    label_counts: tuple[dict[int, int], ...]
    residuals: Tensor
    errors: Tensor
    chances: Tensor
    equations: Tensor
    evidence: tuple[Evidence, ...]
    rounds: Tensor
    sources: Tensor
    isolating: tuple[tuple[int, ...], ...]
    trace: tuple[Round, ...]
    batch_size: int | None
    stated_batch_size: int | None
    batch_votes: int
    rank: int | None
    explained: float
    mismatch: float
    faint: bool
    complete: bool
    stopped: str
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"explains {self.explained:.1%} of the update"
        of = "" if self.batch_size is None else f" of {self.batch_size}"
        return f"Recovery({self.found}{of} samples in {self.cascade_length} rounds, {state})"

    @cached_property
    def found(self) -> int:
        """Number of samples of the batch that are certified, all copies counted."""
        return int(self.multiplicities.clamp(min=1).sum())

    @cached_property
    def cascade_length(self) -> int:
        """Number of rounds that certified something."""
        return sum(1 for round_ in self.trace if round_.certified)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of evidence that some certificate rests on."""
        used = Evidence(0)
        for kinds in self.evidence:
            used |= kinds
        return used.words

    def as_dict(self) -> dict[str, object]:
        """How the cascade went, as plain values for JSON; samples are not among them."""
        return {
            "rounds": self.cascade_length,
            "recovered_by_round": [round_.certified for round_ in self.trace],
            "batch_size_found": self.batch_size,
            "batch_size_stated": self.stated_batch_size,
            "batch_size_votes": self.batch_votes,
            "complete": self.complete,
            "explained": self.explained,
            "mismatch": self.mismatch,
            "evidence": {
                word: sum(word in kinds.words for kinds in self.evidence) for word in self.kinds
            },
            "copies": int((self.multiplicities - 1).clamp(min=0).sum()),
            "unlabelled": int((self.labels < 0).sum()),
            "stopped": self.stopped,
            "warnings": list(self.warnings),
        }

    def count_labels(self, classes: int) -> Tensor:
        """(classes,) how often each label was recovered, all copies counted."""
        counts = torch.zeros(classes, dtype=torch.long)
        for of_sample in self.label_counts:
            for label, copies in of_sample.items():
                counts[label] += copies
        return counts
