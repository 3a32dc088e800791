"""Gather what the page shows from an audit and the data set its batch comes from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gradpeel._version import __version__
from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.designs import RobustSoliton
from gradpeel.reporting.matching import evenly, found_at, rounds_of
from gradpeel.reporting.page.cascade import cascade_of
from gradpeel.reporting.page.payload import (
    VERSION,
    Certificate,
    Mosaic,
    Payload,
    Risk,
    Sample,
)
from gradpeel.reporting.page.pictures import BUDGET, SIDES, Album, as_pictures
from gradpeel.reporting.page.story import story_of
from gradpeel.reporting.words import printable

__all__ = ["gather"]

MOST_SAMPLES = 1024
"""Of a larger batch the page lists evenly spaced samples; counts are always those of all."""
MOST_FEATURES = 40
"""Of longer records the page shows the first features; errors are always those of all."""
NAME = 48
"""Letters that the name of a class or a feature may have."""
PHOTO = 20, 13
"""Columns and rows of tiles in the embedded photograph."""


def gather(audit: Audit, dataset: Dataset | None = None, *, samples: bool = True) -> Payload:
    """Everything the page of an audit shows.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from: says what the data, its labels and its features are
            called; without it they are numbered.
        samples: whether to show samples and labels.
    """
    listed = evenly(0, audit.score.batch_size - 1, MOST_SAMPLES)
    pictures = _Pictures.of(audit, listed)
    payload = Payload(
        version=VERSION,
        made_with=__version__,
        data="own data" if dataset is None else printable(dataset.name),
        batch_size=audit.score.batch_size,
        all_neurons=audit.exposure.grid.shape[0],
        recovered=audit.score.recovered,
        with_samples=True,
        story=story_of(audit),
        cascade=cascade_of(audit),
        risk=_risk(audit),
        samples=tuple(_samples(audit, dataset, listed, pictures)),
        features=() if pictures else _features(audit, dataset),
        all_features=math.prod(audit.x.shape[1:]),
        pictures=tuple(pictures.album.pictures) if pictures else (),
        mosaic=_mosaic(audit, dataset, listed) if pictures else None,
    )
    return payload if samples else payload.without_samples()


class _Pictures:
    """The pictures of the listed samples."""

    def __init__(
        self,
        listed: Iterable[int],
        places: Sequence[int],
        true: NDArray[np.float64],
        found: NDArray[np.float64],
        side: int,
    ) -> None:
        self.album = Album(float(true.min()), float(true.max()), side)
        self.originals = {i: self.album.add(true[i]) for i in listed}
        self.rebuilt = {i: self.album.add(found[places[i]]) for i in listed if places[i] >= 0}

    @classmethod
    def of(cls, audit: Audit, listed: list[int]) -> _Pictures | None:
        """At the largest side at which they fit the page; None where samples are no pictures."""
        true, found = as_pictures(audit.x), as_pictures(audit.recovery.samples)
        if true is None or found is None:
            return None
        largest, places = max(true.shape[1:3]), found_at(audit).tolist()
        for side in (min(largest, SIDES[0]), *(side for side in SIDES if side < largest)):
            pictures = cls(listed, places, true, found, side)
            if pictures.album.letters <= BUDGET:
                break
        return pictures


def _samples(
    audit: Audit, dataset: Dataset | None, listed: list[int], pictures: _Pictures | None
) -> list[Sample]:
    rounds, places = rounds_of(audit), found_at(audit).tolist()
    atypicality = audit.exposure.atypicality.numpy()
    ranks = _ranks(rounds, atypicality).tolist()
    copies = audit.exposure.multiplicities.tolist()
    true = audit.x.double().flatten(1)
    found = audit.recovery.samples.double().flatten(1)
    rows = []
    for i in listed:
        place = places[i]
        is_found = place >= 0
        rows.append(
            Sample(
                index=i,
                outcome=audit.score.outcomes[i].value,
                round=int(rounds[i]),
                risk=ranks[i],
                atypicality=float(atypicality[i]),
                copies=copies[i],
                error=float((found[place] - true[i]).abs().max()) if is_found else None,
                certificate=_certificate(audit, place) if is_found else None,
                label=_label(audit, dataset, i),
                mistaken=_mistaken(audit, dataset, place) if is_found else None,
                original=pictures.originals[i] if pictures else None,
                rebuilt=pictures.rebuilt.get(i) if pictures else None,
                values=() if pictures else tuple(true[i, :MOST_FEATURES].tolist()),
                found=tuple(found[place, :MOST_FEATURES].tolist())
                if is_found and not pictures
                else (),
            )
        )
    return rows


def _ranks(rounds: NDArray[np.int64], atypicality: NDArray[np.float64]) -> NDArray[np.int64]:
    """(batch,) 0 for the sample most at risk: the earlier it falls, then the more atypical."""
    never = np.where(rounds > 0, rounds, rounds.max() + 1)
    order = np.lexsort((-atypicality, never))
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def _certificate(audit: Audit, place: int) -> Certificate:
    recovery = audit.recovery
    return Certificate(
        neuron=int(recovery.sources[place]),
        equations=int(recovery.equations[place]),
        score=float(recovery.scores[place]),
        residual=float(recovery.residuals[place]),
        estimate=float(recovery.errors[place]),
        evidence=recovery.evidence[place].words,
    )


def _label(audit: Audit, dataset: Dataset | None, sample: int) -> str | None:
    """What the label of a sample is called; None where the batch has targets of another kind."""
    if audit.y.is_floating_point():
        return None
    return _class_name(dataset, int(audit.y[sample]))


def _mistaken(audit: Audit, dataset: Dataset | None, place: int) -> str | None:
    if not audit.score.labels_judged[place] or audit.score.labels_right[place]:
        return None
    return _class_name(dataset, int(audit.recovery.labels[place]))


def _class_name(dataset: Dataset | None, label: int) -> str:
    if dataset is None or dataset.class_names is None or not 0 <= label < len(dataset.class_names):
        return str(label)
    # WordNet's names are lists of synonyms; the first one says it.
    return printable(dataset.class_names[label].partition(",")[0], NAME)


def _features(audit: Audit, dataset: Dataset | None) -> tuple[str, ...]:
    number = min(math.prod(audit.x.shape[1:]), MOST_FEATURES)
    if dataset is None or dataset.feature_names is None:
        return tuple(f"feature {place}" for place in range(number))
    return tuple(printable(name, NAME) for name in dataset.feature_names[:number])


def _risk(audit: Audit) -> Risk:
    exposure = audit.exposure
    soliton = getattr(audit.design, "soliton", None)
    neurons, batch_size = exposure.grid.shape
    target = (
        (soliton.probabilities(batch_size) * neurons).tolist()
        if isinstance(soliton, RobustSoliton)
        else []
    )
    return Risk(
        atypicality=tuple(exposure.atypicality.tolist()),
        rounds=tuple(rounds_of(audit).tolist()),
        degrees=tuple(exposure.degree_histogram.tolist()),
        target=tuple(target),
    )


def _mosaic(audit: Audit, dataset: Dataset | None, listed: list[int]) -> Mosaic:
    columns, rows = PHOTO
    if dataset is not None and dataset.name == "photos" and audit.x.shape[1:] == (32, 32, 3):
        # The batch may be shuffled: a tile's place is where the photograph has the same tile.
        tiles = torch.from_numpy(dataset.x_train).flatten(1)
        nearest = torch.cdist(audit.x[listed].double().flatten(1), tiles).argmin(1)
        return Mosaic(columns, rows, tuple(nearest.tolist()))
    columns = math.ceil(math.sqrt(1.6 * len(listed)))
    return Mosaic(columns, -(-len(listed) // columns), tuple(range(len(listed))))
