"""The samples of an audit as the page lists them, and their pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.reporting.images import as_pictures, psnr, ssim
from gradpeel.reporting.matching import found_at, rounds_of
from gradpeel.reporting.page.payload import Certificate, Sample
from gradpeel.reporting.page.pictures import BUDGET, SIDES, Album
from gradpeel.reporting.reasons import NAMES
from gradpeel.reporting.tally import Way, ways
from gradpeel.reporting.words import printable

__all__ = ["Pictures", "feature_names", "sample_rows"]

MOST_FEATURES = 40
"""Of longer records the page shows the first features and a profile of all."""
PROFILES = (1024, 512, 256, 128)
"""Widths of a profile."""
NAME = 48
"""Letters that the name of a class or a feature may have."""


class Pictures:
    """The pictures of the listed samples: of pictures themselves, of long records profiles.

    A profile is one row of grey levels, each from a feature's smallest to its largest value in the
    batch.

    Attributes:
        album: all pictures, each held once.
        originals: place of the original, by sample.
        recovered: place of what was recovered, by sample; missing where nothing was.
    """

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
        self.recovered = {i: self.album.add(found[places[i]]) for i in listed if places[i] >= 0}

    @classmethod
    def of(cls, audit: Audit, listed: list[int]) -> Pictures | None:
        """At the largest side at which they fit the page; None where there is nothing to draw."""
        true, found = as_pictures(audit.truth), as_pictures(audit.recovery.samples)
        sides: tuple[int, ...] = SIDES
        if true is None or found is None:
            if math.prod(audit.truth.shape[1:]) <= MOST_FEATURES:
                return None
            true, found = _profiles(audit)
            sides = PROFILES
        largest, places = max(true.shape[1:3]), found_at(audit).tolist()
        for side in (min(largest, sides[0]), *(side for side in sides if side < largest)):
            pictures = cls(listed, places, true, found, side)
            if pictures.album.letters <= BUDGET:
                break
        return pictures


def _profiles(audit: Audit) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Records as (n, 1, features) shares of each feature's range in the batch."""
    true = audit.truth.double().flatten(1).numpy()
    found = audit.recovery.samples.double().flatten(1).numpy()
    low, span = true.min(axis=0), np.ptp(true, axis=0)
    true, found = ((rows - low) / np.where(span > 0, span, 1.0) for rows in (true, found))
    return true[:, None], found[:, None]


def sample_rows(
    audit: Audit, dataset: Dataset | None, listed: list[int], pictures: Pictures | None
) -> list[Sample]:
    """What the page shows of each listed sample."""
    rounds, places = rounds_of(audit), found_at(audit).tolist()
    atypicality = audit.exposure.atypicality.numpy()
    copies, way = audit.exposure.multiplicities.tolist(), ways(audit)
    is_read = np.array([one is not Way.MISSED for one in way])
    ranks = _ranks(rounds, is_read, atypicality).tolist()
    true = audit.truth.double().flatten(1).numpy()
    found = audit.recovery.samples.double().flatten(1).numpy()
    errors = {i: np.abs(found[places[i]] - true[i]).max() for i in listed if places[i] >= 0}
    likeness = _likeness(audit, places)
    shown_true, shown_found = (_in_units(rows, audit, dataset) for rows in (true, found))
    is_record = as_pictures(audit.truth) is None
    size = audit.score.batch_size
    verdicts = ("unknown",) * size if audit.refuses_membership else audit.membership.verdicts
    rows = []
    for i in listed:
        place = places[i]
        is_found = place >= 0
        values = is_record and is_found
        rows.append(
            Sample(
                index=i,
                way=way[i].value,
                outcome=NAMES[audit.score.outcomes[i]],
                membership=verdicts[i // audit.rows_per_sample],
                round=int(rounds[i]),
                risk=ranks[i],
                atypicality=float(atypicality[i]),
                copies=copies[i],
                error=float(errors[i]) if is_found else None,
                psnr=likeness[i][0] if i in likeness else None,
                ssim=likeness[i][1] if i in likeness else None,
                certificate=_certificate(audit, place) if is_found else None,
                label=_label(audit, dataset, i),
                mistaken=_mistaken(audit, dataset, place) if is_found else None,
                original=pictures.originals[i] if pictures else None,
                recovered=pictures.recovered.get(i) if pictures else None,
                values=tuple(shown_true[i, :MOST_FEATURES].tolist()) if is_record else (),
                found=tuple(shown_found[place, :MOST_FEATURES].tolist()) if values else (),
            )
        )
    return rows


def _in_units(
    rows: NDArray[np.float64], audit: Audit, dataset: Dataset | None
) -> NDArray[np.float64]:
    """Flat records, (n, features), as they were measured."""
    if dataset is None or dataset.units is None or audit.recovery.space == "features":
        return rows
    return dataset.units.original(rows.reshape(-1, *dataset.sample_shape)).reshape(rows.shape)


def _likeness(audit: Audit, places: Sequence[int]) -> dict[int, tuple[float | None, float]]:
    """PSNR and SSIM of each recovered picture, by sample."""
    true, found = as_pictures(audit.truth), as_pictures(audit.recovery.samples)
    if true is None or found is None:
        return {}
    span = float(true.max() - true.min())
    return {
        i: (psnr(true[i], found[place], span), ssim(true[i], found[place], span))
        for i, place in enumerate(places)
        if place >= 0
    }


def _ranks(
    rounds: NDArray[np.int64], is_read: NDArray[np.bool_], atypicality: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(batch,) 0 for the sample most at risk: by round, then what was read without proof."""
    never = np.where(rounds > 0, rounds, rounds.max() + 1)
    order = np.lexsort((-atypicality, ~is_read, never))
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
    """The name of a sample's label; None where the batch has targets of another kind."""
    if audit.y.is_floating_point():
        return None
    return _class_name(dataset, int(audit.y[sample // audit.rows_per_sample]))


def _mistaken(audit: Audit, dataset: Dataset | None, place: int) -> str | None:
    if not audit.score.labels_judged[place] or audit.score.labels_right[place]:
        return None
    return _class_name(dataset, int(audit.recovery.labels[place]))


def _class_name(dataset: Dataset | None, label: int) -> str:
    if dataset is None or dataset.class_names is None or not 0 <= label < len(dataset.class_names):
        return str(label)
    # WordNet's names are lists of synonyms, and the first one is enough.
    return printable(dataset.class_names[label].partition(",")[0], NAME)


def feature_names(audit: Audit, dataset: Dataset | None) -> tuple[str, ...]:
    """Names of the features that are shown."""
    number = min(math.prod(audit.truth.shape[1:]), MOST_FEATURES)
    names = audit.columns if dataset is None else dataset.feature_names
    if audit.recovery.space != "input" or names is None:
        return tuple(f"feature {place}" for place in range(number))
    return tuple(printable(name, NAME) for name in names[:number])
