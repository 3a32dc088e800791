"""Several audits and their spread: one draw decides no verdict.

Example:
    >>> Spread.of([3, 9, 4])
    Spread(least=3, median=4, most=9)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import overload

from gradpeel.audit import Audit

__all__ = ["Audits", "Spread", "TrainingCurve"]


@dataclass(frozen=True)
class Spread:
    """What repeats of a measurement found."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(min(values), median(values), max(values))


@dataclass(frozen=True, eq=False, repr=False)
class Audits(Sequence[Audit]):
    """Repeats of an audit.

    Attributes:
        audits: one per repeat, in their order.
        varied: what differs between them besides the seed: "batches", "initialisations".
    """

    audits: tuple[Audit, ...]
    varied: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.audits)

    @overload
    def __getitem__(self, place: int) -> Audit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Audit, ...]: ...
    def __getitem__(self, place: int | slice) -> Audit | tuple[Audit, ...]:
        return self.audits[place]

    @property
    def readable(self) -> Spread:
        """Number of samples that the server can read, with or without proof."""
        return Spread.of([one.score.read for one in self.audits])

    @property
    def recovered(self) -> Spread:
        """Number of samples that were recovered with proof."""
        return Spread.of([one.score.recovered for one in self.audits])

    @property
    def readable_share(self) -> Spread:
        """Share of the batch that the server can read."""
        return Spread.of([one.score.read / one.score.batch_size for one in self.audits])

    @property
    def recovery_rate(self) -> Spread:
        """Share of the batch that was recovered with proof."""
        return Spread.of([one.score.recovery_rate for one in self.audits])

    @property
    def peeling_bound(self) -> Spread:
        """Share of the batch that peeling reaches on the activation grid."""
        return Spread.of([one.score.peeling_bound for one in self.audits])

    @property
    def member_share(self) -> Spread | None:
        """Share of the batch that the update shows to have taken part; None if it is not asked."""
        if any(one.refuses_membership for one in self.audits):
            return None
        counts = [(one.membership.count("in"), one.score.batch_size) for one in self.audits]
        return Spread.of([inside / size for inside, size in counts])

    @property
    def whole_batches(self) -> int:
        """In how many repeats every sample can be read."""
        return sum(one.score.read == one.score.batch_size for one in self.audits)

    @property
    def worst(self) -> Audit:
        """The audit in which the largest share can be read; of several the first."""
        return max(self.audits, key=lambda one: one.score.read / one.score.batch_size)

    @property
    def false_certificates(self) -> int:
        """Certified samples of all repeats that are far from every true one."""
        return sum(one.score.false_certificates for one in self.audits)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The different numbers of samples in a batch, in rising order."""
        return tuple(sorted({one.score.batch_size for one in self.audits}))

    def __repr__(self) -> str:
        over = f" over {' and '.join(self.varied)}" if self.varied else ""
        sizes, noun = " or ".join(map(str, self.batch_sizes)), self.audits[0].recovery.noun
        found = self.readable
        return (
            f"Audits({len(self)} repeats{over}: {found.least} to {found.most} of {sizes} {noun}s "
            f"readable, median {found.median:g}, in {self.whole_batches} all)"
        )

    def as_dict(self) -> dict[str, object]:
        """The spread and the numbers of every audit, as plain values for JSON."""
        members = self.member_share
        return {
            "varied": list(self.varied),
            "batch_sizes": list(self.batch_sizes),
            "whole_batches": self.whole_batches,
            "readable": asdict(self.readable),
            "readable_share": asdict(self.readable_share),
            "recovered": asdict(self.recovered),
            "recovery_rate": asdict(self.recovery_rate),
            "peeling_bound": asdict(self.peeling_bound),
            "member_share": None if members is None else asdict(members),
            "false_certificates": self.false_certificates,
            "audits": [one.as_dict() for one in self.audits],
        }


@dataclass(frozen=True, eq=False, repr=False)
class TrainingCurve:
    """What the rounds of a training run give away, from one checkpoint to the next.

    Attributes:
        steps: the step of each checkpoint, in rising order.
        at: the audits of each checkpoint, all on the same batches.
    """

    steps: tuple[int, ...]
    at: tuple[Audits, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: int) -> Audits:
        return self.at[place]

    @property
    def worst(self) -> Audit:
        """The audit of any checkpoint in which the largest share can be read."""
        return Audits(tuple(one for audits in self.at for one in audits), ()).worst

    def __repr__(self) -> str:
        listed = ", ".join(
            f"{audits.readable.median:g} at step {step}"
            for step, audits in zip(self.steps, self.at, strict=True)
        )
        sizes = " or ".join(map(str, self.at[0].batch_sizes))
        noun = self.at[0][0].recovery.noun
        return f"TrainingCurve({noun}s readable of {sizes}: {listed})"

    def as_dict(self) -> dict[str, object]:
        """The audits of every checkpoint, as plain values for JSON."""
        found = zip(self.steps, self.at, strict=True)
        return {"checkpoints": [{"step": step, **audits.as_dict()} for step, audits in found]}
