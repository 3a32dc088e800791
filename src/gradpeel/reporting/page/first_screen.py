"""What the first screen of a report draws: the bar of all samples, and the best evidence there is.

Example:
    >>> from gradpeel.reporting.tally import Tally
    >>> [(part.shown, part.name) for part in bar_parts(Tally(14, 50, 0, 0, 0)) if part.number]
    [('14', 'read directly'), ('+50', 'by peeling')]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from gradpeel.reporting.matching import evenly
from gradpeel.reporting.page.payload import Payload, Reconstruction, Sample
from gradpeel.reporting.tally import Tally, Way
from gradpeel.reporting.words import counted

__all__ = ["Evidence", "Part", "bar_label", "bar_parts", "evidence_of"]

SAMPLES = 6
"""Pictures on the first screen."""
KINDS = {
    Way.DIRECT: "direct",
    Way.PEELED: "peeled",
    Way.ROWS: "rows",
    Way.UNPROVEN: "unproven",
    Way.MISSED: "rest",
}
ADDED = {Way.PEELED, Way.ROWS, Way.UNPROVEN}


@dataclass(frozen=True)
class Part:
    """One segment of the bar.

    Attributes:
        kind: its style.
        name: how its samples were read.
        start: samples before it.
        number: samples in it.
        shown: that number as the caption writes it.
        always: whether the caption names it even where it is empty.
    """

    kind: str
    name: str
    start: int
    number: int
    shown: str
    always: bool


@dataclass(frozen=True)
class Evidence:
    """What is shown beside the verdict.

    Attributes:
        kind: "photograph", "pictures", "record", "rebuilt" for reconstructed inputs, or empty where
            there is nothing to show.
        samples: the samples to show.
        rebuilt: the reconstructed inputs to show.
    """

    kind: str
    samples: tuple[Sample, ...] = ()
    rebuilt: tuple[Reconstruction, ...] = ()


def bar_parts(tally: Tally) -> list[Part]:
    """Segments whose widths are the numbers they stand for."""
    parts: list[Part] = []
    for way, number in zip(Way, astuple(tally), strict=True):
        start = sum(part.number for part in parts)
        shown = f"+{number:,}" if way in ADDED and start else f"{number:,}"
        always = way in {Way.DIRECT, Way.MISSED}
        parts.append(Part(KINDS[way], way.value, start, number, shown, always))
    return parts


def bar_label(tally: Tally, noun: str = "sample") -> str:
    """The bar in words.

    Args:
        tally: how many were read in which way.
        noun: what was read: "sample" or "feature vector".

    Example:
        >>> bar_label(Tally(14, 50, 0, 0, 0))
        'Of 64 samples: 14 read directly, 50 by peeling, 0 not recovered.'
    """
    parts = [part for part in bar_parts(tally) if part.number or part.always]
    listed = ", ".join(f"{part.number:,} {part.name}" for part in parts)
    return f"Of {counted(tally.batch_size, noun)}: {listed}."


def evidence_of(payload: Payload) -> Evidence:
    """Reconstructed inputs, the whole photograph, samples of several rounds, or a record."""
    by_risk = sorted((s for s in payload.samples if s.round), key=lambda sample: sample.risk)
    if not by_risk or not payload.with_samples:
        return Evidence("")
    rebuilt = payload.reconstructions
    if rebuilt is not None and rebuilt.rows:
        return Evidence("rebuilt", rebuilt=tuple(rebuilt.rows[:SAMPLES]))
    if payload.features:
        return Evidence("record", (by_risk[0],))
    if payload.mosaic is not None and payload.mosaic.is_photograph:
        return Evidence("photograph")
    return Evidence("pictures", tuple(_over_rounds(by_risk)))


def _over_rounds(by_risk: Sequence[Sample]) -> list[Sample]:
    """Evenly spaced over the samples in the order of their rounds: some of each."""
    return [by_risk[place] for place in evenly(0, len(by_risk) - 1, SAMPLES)]
