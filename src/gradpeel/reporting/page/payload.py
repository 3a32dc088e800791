"""Everything the page of an audit shows, as plain values that JSON can hold.

The page is made from a `Payload` and nothing else, so it can be made again from the file that an
audit left (see `gradpeel.reporting.page.reading`), without the model and without the data.

Samples are in it only where they were asked for. Without them it holds counts, rounds, certificates
and the activation grid: no picture, no value, no label.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

__all__ = [
    "VERSION",
    "Cascade",
    "Certificate",
    "Count",
    "Fact",
    "Mosaic",
    "Payload",
    "Risk",
    "Sample",
    "Step",
    "Story",
]

VERSION = 1
"""Of the file format; a page is rebuilt from this one only."""


@dataclass(frozen=True)
class Fact:
    """A name and a sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Count:
    """A name and a number of samples."""

    name: str
    number: int


@dataclass(frozen=True)
class Story:
    """What a reader is told in words.

    Attributes:
        verdict: the result in one sentence.
        who: who could do it.
        sure: how sure it is.
        limits: what was not shown.
        advice: what to do next, a sentence each.
        warnings: what does not fit together, a sentence each.
        scene: how the round was set up.
        trust: the evidence, and how it stands against the truth.
        missing: what became of the samples that were not rebuilt.
        comparison: how many samples other readings of the gradient get.
        note: what is odd about the comparison; empty where nothing is.
    """

    verdict: str
    who: tuple[Fact, ...]
    sure: tuple[Fact, ...]
    limits: str
    advice: tuple[str, ...]
    warnings: tuple[str, ...]
    scene: tuple[Fact, ...]
    trust: tuple[Fact, ...]
    missing: tuple[Fact, ...]
    comparison: tuple[Count, ...]
    note: str


@dataclass(frozen=True)
class Certificate:
    """What speaks for one rebuilt sample.

    Attributes:
        neuron: the neuron it was read from.
        equations: how many equations it meets.
        score: weight of evidence, in decimal digits.
        residual: worst relative mismatch over the equations.
        estimate: the decoder's own estimate of the error, relative to the size of an entry.
        evidence: the kinds of evidence.
    """

    neuron: int
    equations: int
    score: float
    residual: float
    estimate: float
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """One sample of the batch and what became of it.

    Attributes:
        index: its place in the batch.
        outcome: what became of it, in words.
        round: the round it was rebuilt in; 0 where it was not.
        risk: its rank, 0 for the sample most at risk: by round, then by atypicality.
        atypicality: sum of 1 / p_j over the neurons it fires.
        copies: how often it stands in the batch.
        error: largest absolute error of an entry; None where it was not rebuilt.
        certificate: what speaks for it; None where it was not rebuilt.
        label: what its label is called; None where it has none, or samples are left out.
        mistaken: the label it was taken for, where that is another.
        original: place of its picture in `Payload.pictures`, where samples are pictures.
        rebuilt: place of the picture that was rebuilt.
        values: its features, where samples are no pictures; the first of them where there are many.
        found: the features that were rebuilt.
    """

    index: int
    outcome: str
    round: int
    risk: int
    atypicality: float
    copies: int
    error: float | None
    certificate: Certificate | None
    label: str | None
    mistaken: str | None
    original: int | None
    rebuilt: int | None
    values: tuple[float, ...]
    found: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """The state after one round of the cascade; step 0 is the start.

    Attributes:
        fallen: samples that fell in this round, copies counted one by one.
        live: samples that are left.
        singletons: neurons that one sample alone still fires.
        silent: neurons that no sample left fires.
        degree: mean degree of the neurons that some sample left fires.
        tested: distinct candidates that the decoder tested in this round.
    """

    fallen: int
    live: int
    singletons: int
    silent: int
    degree: float
    tested: int


@dataclass(frozen=True)
class Cascade:
    """The activation grid in drawing order, and when its columns fall.

    Attributes:
        neurons: the neuron of each row, densest first; of a very large layer evenly spaced ones.
        samples: the sample of each column, most atypical last.
        bits: the grid row by row, a bit each, every row padded to whole bytes, as base64.
        falls: for each column the round in which its sample falls; 0 for never.
        copies: for each column whether it repeats a sample of another column.
        sources: for each column the row it was read from; -1 where there is none.
        steps: the state before the first round and after each.
    """

    neurons: tuple[int, ...]
    samples: tuple[int, ...]
    bits: str
    falls: tuple[int, ...]
    copies: tuple[bool, ...]
    sources: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Risk:
    """Which samples are most at risk, and why.

    Attributes:
        atypicality: of every sample of the batch.
        rounds: the round each was rebuilt in; 0 for those that were not.
        degrees: how many neurons have degree 0, 1, ..., B.
        target: how many the design aims at, for degrees 1, ..., B; empty where it aims at none.
    """

    atypicality: tuple[float, ...]
    rounds: tuple[int, ...]
    degrees: tuple[int, ...]
    target: tuple[float, ...]


@dataclass(frozen=True)
class Mosaic:
    """Where each sample stands in a picture of the whole batch.

    Attributes:
        columns: pictures in a row.
        rows: rows of pictures.
        places: for each of `Payload.samples` its place, row by row.
    """

    columns: int
    rows: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class Payload:
    """The page of one audit.

    Attributes:
        version: of the file format.
        made_with: the version of gradpeel.
        data: what the data is called.
        batch_size: samples in the batch.
        all_neurons: neurons of the target.
        recovered: samples rebuilt.
        with_samples: whether samples and labels are shown.
        story: the words.
        cascade: the activation grid.
        risk: atypicality and degrees.
        samples: those the page lists; of a very large batch evenly spaced ones.
        features: names of the features, where samples are no pictures.
        all_features: number of features of a sample.
        pictures: PNG files as data URIs, no two the same.
        mosaic: the picture of the whole batch; None where samples are no pictures.
    """

    version: int
    made_with: str
    data: str
    batch_size: int
    all_neurons: int
    recovered: int
    with_samples: bool
    story: Story
    cascade: Cascade
    risk: Risk
    samples: tuple[Sample, ...]
    features: tuple[str, ...]
    all_features: int
    pictures: tuple[str, ...]
    mosaic: Mosaic | None

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.as_dict(), allow_nan=False, separators=(",", ":"))

    def without_samples(self) -> Payload:
        """The same audit without pictures, values and labels."""
        bare = tuple(
            replace(
                sample,
                label=None,
                mistaken=None,
                original=None,
                rebuilt=None,
                values=(),
                found=(),
            )
            for sample in self.samples
        )
        return replace(
            self, with_samples=False, samples=bare, features=(), pictures=(), mosaic=None
        )
