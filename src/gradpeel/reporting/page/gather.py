"""Gather what the page shows from an audit and the data set its batch comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import torch

from gradpeel._version import __version__
from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.designs import RobustSoliton
from gradpeel.inversion import Inversion
from gradpeel.reporting.images import as_pictures
from gradpeel.reporting.matching import evenly, rounds_of
from gradpeel.reporting.page.cascade import cascade_of
from gradpeel.reporting.page.payload import (
    VERSION,
    Fact,
    Mosaic,
    Payload,
    Remedy,
    Risk,
    Variation,
)
from gradpeel.reporting.page.rebuilt import leaked_of, reconstructions_of
from gradpeel.reporting.page.sample_rows import Pictures, feature_names, sample_rows
from gradpeel.reporting.page.setting import hashes_of, setting_of
from gradpeel.reporting.page.story import story_of
from gradpeel.reporting.tally import tally
from gradpeel.reporting.words import printable
from gradpeel.stopping import Trial

__all__ = ["gather"]

MOST_SAMPLES = 1024
"""Of a larger batch the page lists evenly spaced samples; counts are always those of all."""
PHOTO = 20, 13
"""Columns and rows of tiles in the embedded photograph."""


def gather(
    audit: Audit,
    dataset: Dataset | None = None,
    *,
    samples: bool = True,
    command: str = "",
    compared: Mapping[str, Audit | None] = MappingProxyType({}),
    inversion: Inversion | None = None,
    weights: str = "",
    stopping: Sequence[Trial] = (),
) -> Payload:
    """Everything the page of an audit shows.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from: names the data, its labels and its features and knows
            their units; without it they are numbered.
        samples: whether to show samples and labels.
        command: the command that repeats the audit, where there is one.
        compared: the same audit with one thing changed, by the name of the change; None for one
            that was not finished.
        inversion: the inputs that the audit reconstructed, where it did.
        weights: where the network's weights come from, where that is known.
        stopping: defences that were tried, see `gradpeel.what_stops`.
    """
    listed = evenly(0, audit.score.batch_size - 1, MOST_SAMPLES)
    pictures = Pictures.of(audit, listed)
    is_input = audit.recovery.space == "input"
    is_record = as_pictures(audit.truth) is None
    payload = Payload(
        version=VERSION,
        made_with=__version__,
        date=datetime.now(UTC).date().isoformat(),
        data="own data" if dataset is None else printable(dataset.name),
        setting=tuple(Fact(*row) for row in setting_of(audit, weights)),
        command=printable(command, 400) if command else "",
        hashes=tuple(Fact(*row) for row in hashes_of(audit)),
        variations=tuple(
            Variation(printable(name), None, None)
            if other is None
            else Variation(printable(name), other.score.read, other.score.batch_size)
            for name, other in compared.items()
        ),
        remedies=tuple(
            Remedy(
                one.defence,
                printable(one.setting),
                one.stops,
                one.verdict,
                one.members,
                one.cost,
            )
            for one in stopping
        ),
        space=audit.recovery.space,
        layer=printable(audit.recovery.layer, 80),
        batch_size=audit.score.batch_size,
        all_neurons=audit.exposure.grid.shape[0],
        tally=tally(audit),
        with_samples=True,
        story=story_of(audit, is_inverted=inversion is not None),
        cascade=cascade_of(audit),
        risk=_risk(audit),
        samples=tuple(sample_rows(audit, dataset, listed, pictures)),
        features=feature_names(audit, dataset) if is_record else (),
        all_features=math.prod(audit.truth.shape[1:]),
        in_units=is_input and dataset is not None and dataset.units is not None,
        pictures=tuple(pictures.album.pictures) if pictures else (),
        mosaic=None if is_record else _mosaic(audit, dataset, listed),
        reconstructions=None if inversion is None else reconstructions_of(audit, inversion),
        leaked=leaked_of(audit),
    )
    return payload if samples else payload.without_samples()


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
    if dataset is not None and dataset.name == "photos" and audit.truth.shape[1:] == (32, 32, 3):
        # The batch may be shuffled: a tile's place is where the photograph has the same tile.
        tiles = torch.from_numpy(dataset.x_train).flatten(1)
        nearest = torch.cdist(audit.truth[listed].double().flatten(1), tiles).argmin(1)
        return Mosaic(True, columns, rows, tuple(nearest.tolist()))
    columns = math.ceil(math.sqrt(1.6 * len(listed)))
    return Mosaic(False, columns, -(-len(listed) // columns), tuple(range(len(listed))))
