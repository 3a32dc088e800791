"""Everything the page of an audit shows, as plain values that JSON can hold.

The page is made from a `Payload` and nothing else, so it can be regenerated from the file that an
audit left (see `gradpeel.reporting.page.reading`), without the model and without the data.

Samples are in it only where they were asked for. Without them it holds counts, rounds, certificates
and the activation grid: no picture, no value, no label.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from gradpeel.reporting.tally import Tally

__all__ = [
    "VERSION",
    "Cascade",
    "Certificate",
    "Count",
    "Fact",
    "LeakedTokens",
    "Mosaic",
    "Payload",
    "Reconstruction",
    "Reconstructions",
    "Risk",
    "Sample",
    "Step",
    "Story",
    "Variation",
]

VERSION = 5
"""Of the file format; a page is regenerated from this one only."""


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
    """What the page says in words.

    Attributes:
        verdict: the result in one sentence.
        severity: how bad that is: a name and a sentence.
        membership: which samples are shown to have taken part, read or not, and what that means.
        recovered: what the recovered things are, where they are not inputs; empty where they are.
        who: who can do this.
        confidence: what the certificates rest on, and how they compare with the real data.
        limits: what the audit does not show.
        advice: what to do next, one sentence each.
        warnings: what does not fit together, one sentence each.
        setup: how the round was set up.
        trust: the evidence in detail.
        missing: what became of the samples that were not recovered.
        comparison: how many samples each step of the attack adds up to, last the peeling bound.
        note: what needs an explanation in the comparison; empty where nothing does.
    """

    verdict: str
    severity: Fact
    membership: str
    recovered: str
    who: tuple[Fact, ...]
    confidence: tuple[Fact, ...]
    limits: str
    advice: tuple[str, ...]
    warnings: tuple[str, ...]
    setup: tuple[Fact, ...]
    trust: tuple[Fact, ...]
    missing: tuple[Fact, ...]
    comparison: tuple[Count, ...]
    note: str


@dataclass(frozen=True)
class Certificate:
    """What supports one recovered sample.

    Attributes:
        neuron: the neuron it was read from.
        equations: how many equations it satisfies.
        score: evidence score, in decimal digits.
        residual: largest relative mismatch over the equations.
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
        way: how it was read, in words: one of `gradpeel.reporting.tally.Way`.
        outcome: what became of it, in words.
        membership: whether the update shows that it took part: "in", "out" or "unknown".
        round: the round it was recovered in; 0 where it was not.
        risk: its rank, 0 for the sample most at risk: by round, those read without proof before
            those not read, then by atypicality.
        atypicality: sum of 1 / p_j over the neurons it fires.
        copies: how often it occurs in the batch.
        error: largest absolute error of an entry; None where it was not recovered.
        psnr: peak signal-to-noise ratio in decibels; None where it is not a picture, was not
            recovered or is equal to the original.
        ssim: structural similarity; None where it is not a picture or was not recovered.
        certificate: what supports it; None where it was not recovered.
        label: the name of its label; None where it has none, or samples are left out.
        mistaken: the label it was mistaken for, where that is another.
        original: place of its picture in `Payload.pictures`: the sample itself, or, of a record
            with many features, its profile.
        recovered: place of the picture that was recovered.
        values: its features, where samples are not pictures; only the first where there are many.
        found: the features that were recovered.
    """

    index: int
    way: str
    outcome: str
    membership: str
    round: int
    risk: int
    atypicality: float
    copies: int
    error: float | None
    psnr: float | None
    ssim: float | None
    certificate: Certificate | None
    label: str | None
    mistaken: str | None
    original: int | None
    recovered: int | None
    values: tuple[float, ...]
    found: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """The state after one round of the cascade; step 0 is the start.

    Attributes:
        recovered: samples recovered in this round, copies counted one by one.
        by_rows: how many of them the row cascade recovered.
        left: samples that are left.
        singletons: neurons that exactly one remaining sample fires.
        silent: neurons that no remaining sample fires.
        degree: mean degree of the neurons that some remaining sample fires.
        tested: distinct candidates that the decoder tested in this round.
        residual: norm of what is left of the bias gradient, relative to the update's.
    """

    recovered: int
    by_rows: int
    left: int
    singletons: int
    silent: int
    degree: float
    tested: int
    residual: float


@dataclass(frozen=True)
class Cascade:
    """The activation grid in drawing order, and when its columns are recovered.

    Attributes:
        neurons: the neuron of each row, most active first; of a very large layer evenly spaced
            ones.
        samples: the sample of each column, most atypical last.
        bits: the grid row by row, one bit per cell, every row padded to whole bytes, as base64.
        rounds: for each column the round in which its sample is recovered; 0 for never.
        copies: for each column whether it repeats a sample of another column.
        sources: for each column the row it was read from; -1 where there is none.
        steps: the state before the first round and after each.
    """

    neurons: tuple[int, ...]
    samples: tuple[int, ...]
    bits: str
    rounds: tuple[int, ...]
    copies: tuple[bool, ...]
    sources: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Risk:
    """Which samples are most at risk, and why.

    Attributes:
        atypicality: of every sample of the batch.
        rounds: the round each was recovered in; 0 for those that were not.
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
        is_photograph: whether the samples are tiles of one picture.
        columns: pictures in a row.
        rows: rows of pictures.
        places: for each of `Payload.samples` its place, row by row.
    """

    is_photograph: bool
    columns: int
    rows: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class Reconstruction:
    """One input that was reconstructed from its features.

    Attributes:
        sample: place of the real input in the batch.
        residual: distance of its features from the recovered ones, relative to these.
        is_determined: whether features leave no room around it; for tokens, no other tokens.
        is_exact: whether it is equal to the real input.
        psnr: peak signal-to-noise ratio in decibels; None where it is equal, or a token.
        ssim: structural similarity; None where it is not a picture.
        original: place of the real input in `Reconstructions.pictures`; None where it is not a
            picture, or samples are left out.
        found: place of the reconstruction.
        true_values: the first values of the real input, where it is not a picture.
        found_values: the first values of the reconstruction.
    """

    sample: int
    residual: float
    is_determined: bool
    is_exact: bool
    psnr: float | None
    ssim: float | None
    original: int | None
    found: int | None
    true_values: tuple[float, ...]
    found_values: tuple[float, ...]


@dataclass(frozen=True)
class Reconstructions:
    """Inputs that were reconstructed from features.

    Attributes:
        text: how many there are and how close they come, in sentences.
        rows: those that the page shows.
        all_rows: number of all of them.
        pictures: PNG files as data URIs, no two the same.
    """

    text: str
    rows: tuple[Reconstruction, ...]
    all_rows: int
    pictures: tuple[str, ...]

    def without_samples(self) -> Reconstructions:
        """The same without pictures and values."""
        rows = tuple(
            replace(row, original=None, found=None, true_values=(), found_values=())
            for row in self.rows
        )
        return replace(self, rows=rows, pictures=())


@dataclass(frozen=True)
class LeakedTokens:
    """Tokens that the gradient of an embedding names.

    Attributes:
        layer: name of the embedding.
        number: how many tokens.
        tokens: the first of them, in order; empty where samples are left out.
    """

    layer: str
    number: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Variation:
    """The same audit with one thing changed.

    Attributes:
        name: what was changed.
        read: samples that could be read, with or without proof; None if it was not finished.
        batch_size: samples in its batch; None if it was not finished.
    """

    name: str
    read: int | None
    batch_size: int | None


@dataclass(frozen=True)
class Remedy:
    """A defence that was tried on this audit.

    Attributes:
        defence: what it is.
        setting: the weakest setting that stopped the attack, or else the strongest that was tried.
        stops: whether it stopped the attack; None if that was not finished.
        verdict: what it showed, in words.
        members: samples shown to have taken part; None if that is unknown.
        cost: what it costs, in words.
    """

    defence: str
    setting: str
    stops: bool | None
    verdict: str
    members: int | None
    cost: str


@dataclass(frozen=True)
class Payload:
    """The page of one audit.

    Attributes:
        version: of the file format.
        made_with: the version of gradpeel.
        date: when the report was made, such as 2026-03-31.
        data: the name of the data.
        setting: what was tested: names and short values.
        command: the command that repeats the audit; empty where there is none.
        hashes: SHA-256 of model and update.
        variations: the same audit with one thing changed, where that was run or at least begun.
        remedies: defences that were tried, where that was asked for.
        space: "input" if recovered samples are inputs; "features" if they are feature vectors.
        layer: name of the layer that was read.
        batch_size: samples in the batch.
        all_neurons: neurons of the target.
        tally: how many samples were read in which way.
        with_samples: whether samples and labels are shown.
        story: the words.
        cascade: the activation grid.
        risk: atypicality and degrees.
        samples: those the page lists; of a very large batch evenly spaced ones.
        features: names of the features, where samples are not pictures.
        all_features: number of features of a sample.
        in_units: whether values are in the units they were measured in.
        pictures: PNG files as data URIs, no two the same.
        mosaic: the picture of the whole batch; None where samples are not pictures.
        reconstructions: inputs that were reconstructed from features, where that was done.
        leaked: tokens that the update names, by embedding.
    """

    version: int
    made_with: str
    date: str
    data: str
    setting: tuple[Fact, ...]
    command: str
    hashes: tuple[Fact, ...]
    variations: tuple[Variation, ...]
    remedies: tuple[Remedy, ...]
    space: str
    layer: str
    batch_size: int
    all_neurons: int
    tally: Tally
    with_samples: bool
    story: Story
    cascade: Cascade
    risk: Risk
    samples: tuple[Sample, ...]
    features: tuple[str, ...]
    all_features: int
    in_units: bool
    pictures: tuple[str, ...]
    mosaic: Mosaic | None
    reconstructions: Reconstructions | None
    leaked: tuple[LeakedTokens, ...]

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
                recovered=None,
                values=(),
                found=(),
            )
            for sample in self.samples
        )
        rebuilt = self.reconstructions
        return replace(
            self,
            with_samples=False,
            samples=bare,
            features=(),
            pictures=(),
            mosaic=None,
            reconstructions=None if rebuilt is None else rebuilt.without_samples(),
            leaked=tuple(replace(table, tokens=()) for table in self.leaked),
        )
