from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from gradpeel import Audit
from gradpeel.decoder import BatchSize
from gradpeel.decoder.recovery import Evidence
from gradpeel.reporting.account import batch_size, completeness, copies, evidence


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (BatchSize(8, 8, 8, 8), "8, proven: the recovered samples account for the whole update"),
        (BatchSize(8, 8, 5, None), "8 as stated; the weight of one sample agrees"),
        (BatchSize(8, None, 5, None), "8 as stated; nothing in the update confirms it"),
        (
            BatchSize(8, 16, 5, None),
            (
                "8 as stated, but the weight of one sample suggests 16: either the stated size is "
                "wrong or the update was scaled"
            ),
        ),
        (BatchSize(4, 8, 5, None), "not 4 as stated: 5 samples are certified"),
        (
            BatchSize(None, 8, 5, None),
            "8, estimated from the weight of one sample; scaling would change it",
        ),
        (
            BatchSize(None, None, 5, None),
            "at least 5; it is not stated, and the update does not reveal it",
        ),
        (
            BatchSize(None, None, 0, None),
            "unknown; it is not stated, and the update does not reveal it",
        ),
    ],
)
def test_batch_size(whole: Audit, size: BatchSize, sentence: str) -> None:
    assert batch_size(dataclasses.replace(whole.recovery, batch_size=size)) == sentence


@pytest.mark.parametrize(
    ("multiplicities", "start"),
    [
        ([1] * 7 + [2], "1 sample occurs in the batch more than once"),
        ([1] * 5 + [2, 3, 9], "3 samples occur in the batch more than once"),
        ([1] * 7 + [0], "the number of copies is unknown for 1 sample"),
        (
            [0, 0, 0, 2] + [1] * 4,
            "1 sample occurs in the batch more than once; the number of copies is unknown for 3",
        ),
    ],
)
def test_copies(whole: Audit, multiplicities: list[int], start: str) -> None:
    counted = dataclasses.replace(whole.recovery, multiplicities=torch.tensor(multiplicities))
    assert (copies(counted) or "").startswith(start)


def test_where_nobody_stands_twice_there_is_nothing_to_say(whole: Audit) -> None:
    assert copies(whole.recovery) is None


def test_evidence_is_counted_by_kind(whole: Audit) -> None:
    kinds = (Evidence.NEXT_LAYER | Evidence.STRUCTURE,) * 3 + (Evidence.NEXT_LAYER,) * 5
    mixed = dataclasses.replace(whole.recovery, evidence=kinds)
    assert evidence(mixed) == "next layer (all samples), structure (3 samples)"


UNKNOWN = torch.zeros(8, dtype=torch.long)
NINE = BatchSize(stated=9, by_weight=None, least=8, proven=None)
UNTOLD = BatchSize(stated=None, by_weight=None, least=8, proven=None)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {},
            "complete and proven: the gradient of the recovered samples equals the update in every",
        ),
        (
            {"multiplicities": UNKNOWN},
            "complete at the first layer: the recovered samples account for its whole gradient",
        ),
        (
            {"complete": False, "explained": 0.5},
            "not proven complete: the gradient of the recovered samples explains 50.0 % of it",
        ),
        (
            {"complete": False, "explained": 0.5, "multiplicities": UNKNOWN, "batch_size": NINE},
            "not complete: the gradient of the recovered samples explains 50.0 % of the first",
        ),
        (
            {"complete": False, "explained": 1 - 1e-9, "faint": True, "batch_size": NINE},
            "explains all but 1.0e-09 of it over all layers; the missing samples are too faint",
        ),
        (
            {"complete": False, "explained": 1 - 1e-9, "faint": True, "batch_size": UNTOLD},
            "explains all but 1.0e-09 of it over all layers; anything else is too faint",
        ),
    ],
)
def test_completeness(whole: Audit, facts: dict[str, Any], sentence: str) -> None:
    assert sentence in completeness(dataclasses.replace(whole.recovery, **facts))


def test_nothing_is_not_complete(nothing: Audit) -> None:
    assert completeness(nothing.recovery) == "none of it is explained"
