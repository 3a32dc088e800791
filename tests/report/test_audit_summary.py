from __future__ import annotations

import dataclasses
from collections.abc import Callable
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType

from gradpeel import Audit, audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import TrapWeights
from gradpeel.report import summary
from gradpeel.scoring import Outcome

Printed = Callable[[RenderableType], str]


def flat(text: str) -> str:
    """The words of a panel, without its frame and its line breaks."""
    lines = (line.strip("│ ") for line in text.splitlines()[1:-1])
    return " ".join(" ".join(lines).split())


def changed(found: Audit, **of_score: Any) -> Audit:
    return dataclasses.replace(found, score=dataclasses.replace(found.score, **of_score))


def test_everything_recovered(whole: Audit, printed: Printed) -> None:
    text = flat(printed(summary(whole, data="digits")))
    assert text.startswith("All 8 samples were rebuilt exactly, with labels, from one gradient.")
    assert whole.design.adversary in text
    assert "passive: nothing is tampered with" in text
    assert "batch of 8, 200 neurons on 64 inputs, float64" in text
    assert "this attack 8 of 8 100 %" in text
    assert "Labels right 8 of 8" in text
    assert "False certificates none" in text
    assert "complete, and proven" in text
    assert "Not rebuilt" not in text
    assert "no number here carries over" in text


def test_part_recovered(part: Audit, printed: Printed) -> None:
    text = flat(printed(summary(part, data="digits")))
    score = part.score
    assert text.startswith(
        f"{score.recovered} of 40 samples were rebuilt exactly, with labels, from one gradient."
    )
    assert f"a single pass, no peeling {round(score.baseline_rate * 40)} of 40" in text
    assert f"peeling can reach {round(score.oracle_rate * 40)} of 40" in text
    assert f"{score.outcomes.count(Outcome.UNREACHED)} not reached" in text
    assert "not complete: the samples' own gradient explains" in text
    assert "Not recovered is not safe." in text
    for round_ in part.recovery.trace:
        assert f"round {round_.number} " in text


def test_nothing_recovered(nothing: Audit, printed: Printed) -> None:
    text = flat(printed(summary(nothing, data="digits")))
    assert text.startswith("No sample of 8 was rebuilt from this gradient.")
    assert "nothing of it is explained" in text
    assert "Not recovered is not safe." in text
    assert "fell in which round" not in text
    assert "Worst error" not in text


def test_records(records: Audit, printed: Printed) -> None:
    assert "12 neurons" not in printed(summary(records, data="breast_cancer"))
    assert "All 12 samples" in printed(summary(records, data="breast_cancer"))


def test_active_design(digits: Dataset, part: Audit, printed: Printed) -> None:
    batch = draw_batch(digits, 8)
    found = audit(part.model, batch.x, batch.y, design=TrapWeights())
    text = flat(printed(summary(found, data="digits")))
    assert "active: the client receives a layer that was tampered with" in text
    assert "trap-weights, independent weights, seed 0" in text


def test_batch_of_one(digits: Dataset, part: Audit, printed: Printed) -> None:
    batch = draw_batch(digits, 1)
    text = flat(printed(summary(audit(part.model, batch.x, batch.y), data="digits")))
    assert text.startswith("The only sample was rebuilt exactly, with labels, from one gradient.")


def test_more_than_the_grid_promises(whole: Audit, printed: Printed) -> None:
    text = flat(printed(summary(changed(whole, oracle_rate=6 / 8), data="digits")))
    assert "peeling can reach 6 of 8" in text
    assert "2 more than peeling the activation grid" in text
    assert "cannot hide others" in text
    assert "more than peeling" not in printed(summary(whole, data="digits"))


def test_reachable_samples_are_named_with_a_reason(whole: Audit, printed: Printed) -> None:
    outcomes = list(whole.score.outcomes)
    outcomes[2] = outcomes[5] = Outcome.FAINT
    outcomes[6] = Outcome.MISSED
    found = dataclasses.replace(
        changed(whole, outcomes=tuple(outcomes)), signals=torch.full((8,), 3e-17)
    )
    text = flat(printed(summary(found, data="digits")))
    assert text.startswith("5 of 8 samples")
    assert "2 faint no. 2 and 5: reachable, but at most 3.0e-17 of what they" in text
    assert "1 missed no. 6: reachable, but the decoder stopped short" in text


def test_faults_are_told(whole: Audit, printed: Printed) -> None:
    matches = whole.score.matches.clone()
    matches[0], matches[1] = -1, matches[2]
    outcomes = list(whole.score.outcomes)
    outcomes[int(whole.score.matches[0])] = Outcome.MISSED
    outcomes[int(whole.score.matches[1])] = Outcome.MISSED
    found = changed(whole, matches=matches, outcomes=tuple(outcomes))
    text = flat(printed(summary(found, data="digits")))
    assert "False certificates 1: a fault of gradpeel, please report it" in text
    assert "Repeats 1: a fault of gradpeel" in text


def test_wrong_labels_are_not_called_right(whole: Audit, printed: Printed) -> None:
    right = whole.score.labels_right.clone()
    right[0] = False
    text = flat(printed(summary(changed(whole, labels_right=right), data="digits")))
    assert text.startswith("All 8 samples were rebuilt exactly from one gradient.")
    assert "Labels right 7 of 8" in text


def test_whole_batch_without_proof(whole: Audit, printed: Printed) -> None:
    unproven = dataclasses.replace(whole.recovery, complete=False, explained=1 - 2.4e-8)
    found = dataclasses.replace(whole, recovery=unproven)
    text = flat(printed(summary(found, data="digits")))
    assert "not proven complete: the samples' own gradient explains all but 2.4e-08 of it" in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "a\x1b[31mb", "x\ny", "[link=http://x]y"])
def test_names_are_neither_markup_nor_control_codes(name: str, whole: Audit) -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(summary(whole, data=name))
    assert isinstance(console.file, StringIO)
    first = console.file.getvalue().splitlines()[0]
    assert name.encode("unicode_escape").decode() in first
    assert "\x1b[31m" not in first


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(width: int, whole: Audit, part: Audit) -> None:
    for found in (whole, part):
        console = Console(file=StringIO(), width=width)
        console.print(summary(found, data="d" * 300))
        assert isinstance(console.file, StringIO)
        assert max(map(len, console.file.getvalue().splitlines())) <= min(width, 88)


def test_no_colours_where_there_is_no_terminal(whole: Audit, printed: Printed) -> None:
    assert "\x1b" not in printed(summary(whole, data="digits"))


def test_ascii_is_enough(part: Audit) -> None:
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding="ascii")
    Console(file=stream, width=80).print(summary(part, data="digits"))
    stream.flush()
    assert raw.getvalue().isascii()
