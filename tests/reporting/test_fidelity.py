"""What is said about closeness is what the worst entry allows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from gradpeel import Audit
from gradpeel.reporting.fidelity import fidelity


def moved(audit: Audit, by: float) -> Audit:
    """The same audit, with one entry of one recovered sample off by so much."""
    samples = audit.x[audit.score.matches].clone()
    samples[0].view(-1)[0] += by
    errors = torch.zeros(len(samples), dtype=torch.float64)
    errors[0] = abs(by)
    return dataclasses.replace(
        audit,
        recovery=dataclasses.replace(audit.recovery, samples=samples),
        score=dataclasses.replace(audit.score, errors=errors),
    )


@pytest.mark.parametrize(
    ("by", "phrase"),
    [
        (0.0, "bit for bit"),
        (1e-16, "to within one grey level"),
        (1 / 256, "to within one grey level"),
        (1 / 254, "approximately"),
    ],
)
def test_pictures(whole: Audit, by: float, phrase: str) -> None:
    assert float(whole.x.max() - whole.x.min()) == 1
    assert fidelity(moved(whole, by)) == phrase


@pytest.mark.parametrize(
    ("share", "phrase"),
    [(0.0, "bit for bit"), (2e-9, "to 8 digits"), (5e-4, "to 3 digits"), (5e-3, "approximately")],
)
def test_records(records: Audit, share: float, phrase: str) -> None:
    feature = records.x[:, 0]
    span = float(feature.max() - feature.min())
    assert fidelity(moved(records, share * span)) == phrase


def test_nothing_has_no_closeness(nothing: Audit) -> None:
    assert fidelity(nothing) == ""
