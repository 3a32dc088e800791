"""Every sample of a batch counted once, by the way it was read out of the gradient.

Whatever says how many samples were recovered takes its numbers from here, so that no two sentences
can disagree.

Example:
    >>> Tally(direct=14, peeled=50, rows=0, unproven=0, missed=0).batch_size
    64
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from gradpeel.audit import Audit
from gradpeel.decoder.recovery import Stage
from gradpeel.reporting.matching import found_at
from gradpeel.scoring import Outcome

__all__ = ["Tally", "Way", "tally", "ways"]


class Way(StrEnum):
    """How a sample was read."""

    DIRECT = "read directly"
    PEELED = "by peeling"
    ROWS = "by the row cascade"
    UNPROVEN = "read without proof"
    MISSED = "not recovered"


@dataclass(frozen=True)
class Tally:
    """How many samples of a batch were read in which way.

    Attributes:
        direct: certified; a neuron isolates them from the start.
        peeled: certified once others had been subtracted.
        rows: certified by the row cascade, which needs no neuron that isolates them.
        unproven: read, but not certified; only an audit, which knows the batch, can count them.
        missed: the rest.
    """

    direct: int
    peeled: int
    rows: int
    unproven: int
    missed: int

    @property
    def recovered(self) -> int:
        """Samples that come with a certificate."""
        return self.direct + self.peeled + self.rows

    @property
    def read(self) -> int:
        """Samples that a server could read, with or without proof."""
        return self.recovered + self.unproven

    @property
    def batch_size(self) -> int:
        """All samples."""
        return self.read + self.missed


def ways(audit: Audit) -> list[Way]:
    """How each sample of the batch was read."""
    stages, isolated = audit.recovery.stages, audit.exposure.isolated.tolist()
    places, readable = found_at(audit).tolist(), audit.score.readable.tolist()
    found = []
    for sample, outcome in enumerate(audit.score.outcomes):
        if outcome is not Outcome.RECOVERED:
            found.append(Way.UNPROVEN if readable[sample] else Way.MISSED)
        elif places[sample] >= 0 and stages[places[sample]] is Stage.ROWS:
            found.append(Way.ROWS)
        else:
            found.append(Way.DIRECT if isolated[sample] else Way.PEELED)
    return found


def tally(audit: Audit) -> Tally:
    """Count the samples of an audit by the way they were read."""
    counts = Counter(ways(audit))
    return Tally(*(counts[way] for way in Way))
