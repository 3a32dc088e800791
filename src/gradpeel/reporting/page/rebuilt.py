"""Reconstructed inputs and leaked tokens as the page shows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.checks import finite_or_none
from gradpeel.inversion import Inversion
from gradpeel.inversion.likeness import Likeness
from gradpeel.reporting.images import as_pictures
from gradpeel.reporting.matching import evenly
from gradpeel.reporting.page.payload import LeakedTokens, Reconstruction, Reconstructions
from gradpeel.reporting.page.pictures import SIDES, Album
from gradpeel.reporting.reconstructions import reconstructions
from gradpeel.reporting.words import printable

__all__ = ["leaked_of", "reconstructions_of"]

MOST = 96
"""Reconstructions that the page shows; of more, evenly spaced ones."""
MOST_VALUES = 16
"""Values of an input that is not a picture."""
MOST_TOKENS = 200
"""Tokens that are listed of an embedding."""


def reconstructions_of(audit: Audit, found: Inversion) -> Reconstructions:
    """The reconstructions of an audit, beside the real inputs."""
    likeness = found.likeness
    assert likeness is not None  # noqa: S101 -- `Report.of` made sure
    matched = [place for place, sample in enumerate(likeness.samples.tolist()) if sample >= 0]
    matched.sort(key=lambda place: int(likeness.samples[place]))
    shown = [matched[at] for at in evenly(0, len(matched) - 1, MOST)] if matched else []
    pictures: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    if shown and found.inputs.is_floating_point():
        true, made = as_pictures(audit.x), as_pictures(found.inputs)
        pictures = None if true is None or made is None else (true, made)
    album = Album(0.0, 1.0)
    if pictures is not None:
        side = min(SIDES[0], max(pictures[0].shape[1:3]))
        album = Album(float(pictures[0].min()), float(pictures[0].max()), side)
    rows = tuple(_row(audit, found, likeness, place, album, pictures) for place in shown)
    return Reconstructions(
        text=reconstructions(found), rows=rows, all_rows=len(found), pictures=tuple(album.pictures)
    )


def _row(  # noqa: PLR0917
    audit: Audit,
    found: Inversion,
    likeness: Likeness,
    place: int,
    album: Album,
    pictures: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> Reconstruction:
    sample = int(likeness.samples[place])
    values = [audit.x[sample].flatten(), found.inputs[place].flatten()]
    shown = [tuple(map(float, of[:MOST_VALUES].tolist())) for of in values]
    return Reconstruction(
        sample=sample,
        residual=float(found.residuals[place]),
        is_determined=bool(found.determined[place]),
        is_exact=bool(likeness.exact[place]),
        psnr=finite_or_none(float(likeness.psnr[place])),
        ssim=finite_or_none(float(likeness.ssim[place])),
        original=None if pictures is None else album.add(pictures[0][sample]),
        found=None if pictures is None else album.add(pictures[1][place]),
        true_values=shown[0] if pictures is None else (),
        found_values=shown[1] if pictures is None else (),
    )


def leaked_of(audit: Audit) -> tuple[LeakedTokens, ...]:
    """The tokens that the update names, by embedding."""
    return tuple(
        LeakedTokens(printable(name, 80), len(tokens), tuple(tokens[:MOST_TOKENS].tolist()))
        for name, tokens in audit.leaked_tokens.items()
    )
