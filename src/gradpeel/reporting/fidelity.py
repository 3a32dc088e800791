"""How close the recovered samples are to the originals, in words that claim no more than is true.

Example:
    >>> import numpy as np
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("digits"), 4)
    >>> model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    >>> fidelity(audit(model, batch.x, batch.y))
    'to within one grey level'
"""

from __future__ import annotations

import math

import numpy as np

from gradpeel.audit import Audit
from gradpeel.reporting.images import as_pictures

__all__ = ["GREY_LEVELS", "fidelity"]

GREY_LEVELS = 255
"""Steps between black and white in a picture of 8 bits."""
FEWEST_DIGITS = 3


def fidelity(audit: Audit) -> str:
    """A phrase for the worst entry of all certified samples; empty where none is certified.

    - "bit for bit": every entry is equal.
    - "to within one grey level": pictures, and no pixel is farther off than that.
    - "to 12 digits": relative to the range of each feature over the batch.
    - "approximately": anything else.
    """
    score = audit.score
    if score.max_abs_error is None:
        return ""
    if score.max_abs_error == 0:
        return "bit for bit"
    true = audit.truth.double().flatten(1).numpy()
    if as_pictures(audit.truth) is not None:
        level = float(true.max() - true.min()) / GREY_LEVELS
        return "to within one grey level" if score.max_abs_error <= level else "approximately"
    matched = score.matches.numpy() >= 0
    found = audit.recovery.samples.double().flatten(1).numpy()[matched]
    spans = np.ptp(true, axis=0)
    # A feature that does not vary has no range of its own.
    errors = np.abs(found - true[score.matches.numpy()[matched]]) / np.where(spans > 0, spans, 1.0)
    worst = float(errors.max())
    digits = math.floor(-math.log10(worst)) if worst > 0 else FEWEST_DIGITS
    return f"to {digits} digits" if digits >= FEWEST_DIGITS else "approximately"
