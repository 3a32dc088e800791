"""The result of peeling, and what happens on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Flag, IntEnum
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from gradpeel.decoder.unproven import Unproven

__all__ = ["BatchSize", "Evidence", "Recovery", "Round", "RowCount", "Stage"]


class Stage(IntEnum):
    """How thorough the search for a sample was."""

    STRICT = 0
    """Every mismatch is explained by the tracked error."""
    MEASURED = 1
    """Its gradient may be that of several copies, or anything: the structure decides."""
    SPECULATIVE = 2
    """It may contain a trace of a sample with almost no gradient, or has little evidence yet."""
    ROWS = 3
    """No neuron isolates it: the row cascade read it."""


@dataclass(frozen=True)
class RowCount:
    """How far the row cascade came when it was last tried.

    Attributes:
        found: rows that were found.
        unknown: distinct samples that peeling had left.
        searched: whether it was tried at all; it is not where they are too many.
    """

    found: int
    unknown: int
    searched: bool = True


@dataclass(frozen=True)
class BatchSize:
    """What is known about the number of samples in the batch.

    The scale of an update is not known: clipping, learning rates and client weights change it. So a
    stated size is a hint, and the weight of one sample is another.

    Attributes:
        stated: what the update states, if anything.
        by_weight: one over the weight of a sample, where the loss is a mean and that is a whole
            number.
        least: number of certified samples, all copies counted.
        proven: the number of samples, where those found reproduce the whole update and their
            weights add up to the whole batch; None elsewhere.
    """

    stated: int | None
    by_weight: int | None
    least: int
    proven: int | None

    @property
    def value(self) -> int | None:
        """The most credible number; None where nothing is stated, or the statement is refuted."""
        if self.proven is not None:
            return self.proven
        hints = [size for size in (self.stated, self.by_weight) if size is not None]
        return next((size for size in hints if size >= max(self.least, 1)), None)

    @property
    def is_confirmed(self) -> bool:
        """Whether the stated size is proven, or the weight of one sample agrees with it."""
        return self.stated is not None and self.stated in {self.proven, self.by_weight}

    @property
    def is_refuted(self) -> bool:
        """Whether the stated size is proven to be wrong."""
        if self.stated is None:
            return False
        return self.stated < self.least or self.proven not in {None, self.stated}


@dataclass(frozen=True, eq=False)
class Round:
    """One examination of the candidates, and what it certified.

    Attributes:
        number: 1 for the first; examinations that certify nothing have the number of the next that
            does.
        stage: how thorough the search was.
        looked_at: live neurons whose candidate was formed.
        distinct: candidates left after merging.
        sources: (n,) neurons the samples certified in this round were read from.
        labels: (n,) their labels, -1 where unknown.
        fires: (n, neurons) which neurons each of them fires.
        quiet: neurons whose residual is zero after the round.
        left: norm of the residual bias after the round, relative to the update's.
    """

    number: int
    stage: Stage
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

    def only(self, sources: Tensor) -> Round:
        """The round with those samples alone that were read from some neurons, (n,)."""
        stays = torch.isin(self.sources, sources)
        if bool(stays.all()):
            return self
        return replace(
            self,
            sources=self.sources[stays],
            labels=self.labels[stays],
            fires=self.fires[stays],
        )


class Evidence(Flag):
    """The kinds of evidence for a certified sample."""

    BIAS = 1
    NEXT_LAYER = 2
    STRUCTURE = 4
    FOLLOWERS = 8
    RANGE = 16
    ROW = 32

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
    Evidence.ROW: "row of the update",
}


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything `peel` found, in the order it was found.

    Attributes:
        space: "input" if samples are inputs of the network; "features" if they are inputs of the
            layer, because what stands in front of it cannot be undone.
        layer: name of the layer that was read.
        samples: (n, *sample_shape) recovered samples; (n, features) where they are features.
        labels: (n,) their labels, of several the most frequent; -1 where unknown.
        multiplicities: (n,) how many copies of each the batch holds, relative to the lightest
            sample: the scale of an update does not show whether that has copies too. Where the
            batch size is confirmed these are the numbers themselves. 0 where unknown.
        label_counts: the number of copies by label, of each; empty where unknown.
        residuals: (n,) certificate residual: worst relative mismatch over the equations.
        errors: (n,) estimated root-mean-square error of a sample's entries, relative to the typical
            size of one.
        scores: (n,) evidence score: the decimal digits to which independent equations hold, added
            up. It ranks certificates; it is not a probability.
        equations: (n,) number of equations each certificate rests on.
        evidence: the kinds of evidence that each certificate rests on.
        stages: how thorough the search for each had to be.
        rounds: (n,) the round each was certified in, from 1.
        sources: (n,) the neuron each was read from; the row cascade subtracts all other samples
            there.
        isolating: the neurons that yielded each at that moment; not always all neurons that isolate
            it on the grid, and none for what the row cascade read.
        unproven: what was read but not certified, the most credible first.
        trace: all examinations of candidates, including those that certified nothing.
        candidates_tested: number of candidates judged in all of them.
        batch_size: what is known of the number of samples in the batch.
        share: weight of one sample in the update; None where it could not be determined.
        rank: least number of distinct samples in the update, where it was computed.
        rows: how far the row cascade came; None where peeling sufficed, or nothing else was wanted.
        explained: share of the update (all layers from the target on, by norm; the target alone
            where the tail is unknown) that the samples reproduce, as random directions show.
        mismatch: worst relative gap between the update and the samples' own gradient on the neurons
            that count as explained; a number far above the dtype's resolution is a warning.
        faint: the update is explained although samples are missing: their gradients are too small
            to be certified in its dtype.
        complete: the samples reproduce the whole update, all layers from the target on, and their
            weights add up to the whole batch; where the tail is unknown, they reproduce the
            target's gradient and are as many as stated.
        stopped: why the cascade ended, in a sentence.
        warnings: contradictions, one sentence each.
    """

    space: Literal["input", "features"]
    layer: str
    samples: Tensor
    labels: Tensor
    multiplicities: Tensor
    label_counts: tuple[dict[int, int], ...]
    residuals: Tensor
    errors: Tensor
    scores: Tensor
    equations: Tensor
    evidence: tuple[Evidence, ...]
    stages: tuple[Stage, ...]
    rounds: Tensor
    sources: Tensor
    isolating: tuple[tuple[int, ...], ...]
    unproven: Unproven
    trace: tuple[Round, ...]
    candidates_tested: int
    batch_size: BatchSize
    share: float | None
    rank: int | None
    rows: RowCount | None
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
        size = self.batch_size.value
        of = "" if size is None else f" of {size}"
        return f"Recovery({self.found}{of} {self.noun}s in {self.cascade_length} rounds, {state})"

    @property
    def noun(self) -> str:
        """What one recovered thing is called: "sample" or "feature vector"."""
        return "sample" if self.space == "input" else "feature vector"

    @cached_property
    def found(self) -> int:
        """Number of samples of the batch that are certified, all copies counted."""
        return int(self.multiplicities.clamp(min=1).sum())

    @cached_property
    def found_by_rows(self) -> int:
        """How many of them no neuron isolated, so that the row cascade read them."""
        several = self.multiplicities.clamp(min=1).tolist()
        found = zip(several, self.stages, strict=True)
        return sum(copies for copies, stage in found if stage is Stage.ROWS)

    @cached_property
    def cascade_length(self) -> int:
        """Number of rounds that certified something."""
        return sum(1 for round_ in self.trace if round_.certified)

    @cached_property
    def by_round(self) -> list[int]:
        """How many were certified in each round that certified something."""
        return [round_.certified for round_ in self.trace if round_.certified]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of evidence that some certificate rests on."""
        used = Evidence(0)
        for kinds in self.evidence:
            used |= kinds
        return used.words

    def as_dict(self) -> dict[str, object]:
        """How the cascade went, as plain values for JSON, without any samples."""
        return {
            "space": self.space,
            "layer": self.layer,
            "rounds": self.cascade_length,
            "recovered_by_round": self.by_round,
            "recovered_by_rows": self.found_by_rows,
            "candidates_tested": self.candidates_tested,
            "batch_size_stated": self.batch_size.stated,
            "batch_size_by_weight": self.batch_size.by_weight,
            "batch_size_proven": self.batch_size.proven,
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
