"""Why samples were not recovered, in words.

Example:
    >>> from gradpeel.scoring import Outcome
    >>> NAMES[Outcome.FAINT]
    'too faint'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gradpeel.audit import Audit
from gradpeel.reporting.words import listing, scientific, short
from gradpeel.scoring import RIGHT, Outcome

__all__ = ["NAMES", "missing", "precision"]

NAMES: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.RECOVERED: "recovered",
        Outcome.ROUGH: "inaccurate",
        Outcome.FAINT: "too faint",
        Outcome.COARSE: "not provable",
        Outcome.INEXACT: "too inexact",
        Outcome.HIDDEN: "hidden",
        Outcome.MISSED: "missed",
        Outcome.UNREACHED: "not reached",
    }
)
"""What reports call the outcome of a sample."""

_WHY = {
    Outcome.ROUGH: f"certified, but the error exceeds {RIGHT:g} of the distance between samples",
    Outcome.FAINT: (
        "within reach of peeling, but too faint for {precision}: each contributes at most {share} "
        "of the sum that contains it"
    ),
    Outcome.COARSE: (
        "within reach of peeling, but {precision} keeps fewer digits than a certificate needs"
    ),
    Outcome.INEXACT: (
        "within reach of peeling, but roundings and subtractions left too few exact digits"
    ),
    Outcome.HIDDEN: "within reach only after another sample that was not recovered",
    Outcome.MISSED: "within reach of peeling, but the decoder stopped before it found them",
    Outcome.UNREACHED: "no neuron isolates them, and the row cascade {rows}",
}


def missing(audit: Audit) -> list[tuple[str, str]]:
    """What became of the samples that were not recovered; those within reach are listed."""
    rows = []
    recovered = {Outcome.RECOVERED, Outcome.ROUGH}
    each = list(zip(audit.score.outcomes, audit.score.readable.tolist(), strict=True))
    unproven = [i for i, (became, read) in enumerate(each) if read and became not in recovered]
    if unproven:
        why = f"{_numbered(unproven)}: read correctly, but not certified; {audit.recovery.stopped}"
        rows.append((f"{len(unproven)} not proven", why))
    for outcome, template in _WHY.items():
        them = [
            i
            for i, (became, read) in enumerate(each)
            if became is outcome and (outcome in recovered or not read)
        ]
        if not them:
            continue
        share = scientific(float(audit.signals[them].max()))
        why = template.format(precision=_limit(audit), share=share, rows=_rows(audit))
        # What concerns a whole batch or dtype says nothing about single samples.
        is_single = outcome not in {Outcome.COARSE, Outcome.UNREACHED}
        text = f"{_numbered(them)}: {why}" if is_single else why
        rows.append((f"{len(them):,} {NAMES[outcome]}", text))
    return rows


def _numbered(samples: list[int]) -> str:
    return f"{'sample' if len(samples) == 1 else 'samples'} {listing(samples)}"


def _rows(audit: Audit) -> str:
    """What the row cascade did about them."""
    rows = audit.recovery.rows
    if rows is None:
        return "was not run"
    return "did not find them" if rows.searched else "was not run because they are too many"


def _limit(audit: Audit) -> str:
    """What limits the precision of the update: its dtype, the rounding of weights, or noise."""
    if audit.local_steps is None:
        return precision(audit)
    dtype, *noise = precision(audit).split(" ", 1)
    weights = f"a difference of {dtype} weights at learning rate {short(audit.client.lr or 1.0)}"
    return " ".join([weights, *noise])


def precision(audit: Audit) -> str:
    """How precise the update is."""
    dtype = str(audit.update.dtype).removeprefix("torch.")
    return f"{dtype} with noise of {audit.client.noise:.2g}" if audit.client.noise else dtype
