from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from gradpeel import Audit
from gradpeel.decoder.recovery import Evidence
from gradpeel.reporting.account import batch_size, completeness, copies, evidence


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "8, as stated (8 samples agree)"),
        ({"batch_votes": 1}, "8, as stated (1 sample agrees)"),
        ({"batch_votes": 0}, "8, as stated"),
        ({"stated_batch_size": None}, "8, found in the update (8 samples agree)"),
        (
            {"stated_batch_size": None, "batch_votes": 0},
            "8 by the rank of the update, copies counted once",
        ),
        ({"stated_batch_size": 9}, "8, found in the update (8 samples agree), not 9 as stated"),
        (
            {"stated_batch_size": None, "batch_size": None},
            "not known: nobody states it, and nothing in the update tells",
        ),
    ],
)
def test_batch_size(whole: Audit, facts: dict[str, Any], sentence: str) -> None:
    assert batch_size(dataclasses.replace(whole.recovery, **facts)) == sentence


@pytest.mark.parametrize(
    ("multiplicities", "start"),
    [
        ([1] * 7 + [2], "1 sample stands in the batch more than once"),
        ([1] * 5 + [2, 3, 9], "3 samples stand in the batch more than once"),
        ([1] * 7 + [0], "of 1 sample it is not known how many there are"),
        (
            [0, 0, 0, 2] + [1] * 4,
            "1 sample stands in the batch more than once; of 3 samples it is not known",
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
    assert evidence(mixed) == "next layer for all, structure for 3"


UNKNOWN = torch.zeros(8, dtype=torch.long)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "complete, and proven: the samples' own gradient is the update, in all its layers"),
        (
            {"multiplicities": UNKNOWN},
            "complete at the target: the samples make up all of its gradient",
        ),
        (
            {"complete": False, "explained": 0.5},
            "not proven complete: the samples' own gradient explains 50.0 % of it, over all layers",
        ),
        (
            {"complete": False, "explained": 0.5, "multiplicities": UNKNOWN, "batch_size": 9},
            "not complete: the samples' own gradient explains 50.0 % of the target's",
        ),
        (
            {"complete": False, "explained": 1 - 1e-9, "faint": True, "batch_size": 9},
            "the samples' own gradient explains all but 1.0e-09 of it, over all layers; what is mi",
        ),
        (
            {"complete": False, "explained": 1 - 1e-9, "faint": True, "batch_size": None},
            "the samples' own gradient explains all but 1.0e-09 of it, over all layers; anything m",
        ),
    ],
)
def test_completeness(whole: Audit, facts: dict[str, Any], sentence: str) -> None:
    assert completeness(dataclasses.replace(whole.recovery, **facts)).startswith(sentence)


def test_nothing_is_not_complete(nothing: Audit) -> None:
    assert completeness(nothing.recovery) == "nothing of it is explained"
