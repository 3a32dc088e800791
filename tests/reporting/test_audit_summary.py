from __future__ import annotations

import dataclasses
from collections.abc import Callable
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType

from gradpeel import Attacker, Audit, Client, audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import TrapWeights
from gradpeel.reporting import summary
from gradpeel.scoring import Outcome

Printed = Callable[[RenderableType], str]
WHOLE = (
    "All 8 samples were recovered from one gradient, with their labels, to within one grey level."
)


def flat(text: str) -> str:
    """The words of a panel, without its frame and its line breaks."""
    lines = (line.strip("│ ") for line in text.splitlines()[1:-1])
    return " ".join(" ".join(lines).split())


def changed(found: Audit, **of_score: Any) -> Audit:
    return dataclasses.replace(found, score=dataclasses.replace(found.score, **of_score))


def test_everything_recovered(whole: Audit, printed: Printed) -> None:
    text = flat(printed(summary(whole, data="digits")))
    assert text.startswith(WHOLE)
    assert whole.design.adversary in text
    assert "passive: nothing is changed" in text
    assert "batch of 8, 200 neurons with 64 inputs each, cross-entropy" in text
    assert "Batch size 8, proven: the recovered samples account for the whole update" in text
    assert "with peeling 8 of 8 100 %" in text
    assert "without proof" not in text
    assert "row cascade" not in text
    assert "Evidence bias equation (all samples), next layer (all samples)" in text
    assert "Labels 8 of 8 right" in text
    assert "False certificates none" in text
    for absent in ("Inexact", "Repeated", "Copies", "Later layers", "Warning"):
        assert absent not in text
    assert "complete and proven" in text
    assert "Not recovered" not in text
    assert "none of these numbers carries over" in text


def test_part_recovered(part: Audit, printed: Printed) -> None:
    text = flat(printed(summary(part, data="digits")))
    score = part.score
    assert text.startswith(
        f"{score.recovered} of 40 samples were recovered from one gradient, with their labels, to "
    )
    assert f"read directly, without peeling {round(score.baseline_rate * 40)} of 40" in text
    assert f"peeling bound {round(score.peeling_bound * 40)} of 40" in text
    assert f"{score.outcomes.count(Outcome.UNREACHED)} not reached" in text
    assert "not complete: the gradient of the recovered samples explains" in text
    assert "Not recovered is not safe." in text
    for number in range(1, part.recovery.cascade_length + 1):
        assert f"round {number} " in text
    assert f"round {part.recovery.cascade_length + 1} " not in text


def test_nothing_recovered(nothing: Audit, printed: Printed) -> None:
    text = flat(printed(summary(nothing, data="digits")))
    assert text.startswith("This attack did not recover any of the 8 samples from this gradient.")
    assert "none of it is explained" in text
    assert "Not recovered is not safe." in text
    assert "recovered per round" not in text
    assert "Largest error" not in text


def test_records(records: Audit, printed: Printed) -> None:
    assert "12 neurons" not in printed(summary(records, data="breast_cancer"))
    assert "All 12 samples" in printed(summary(records, data="breast_cancer"))


def test_active_design(digits: Dataset, part: Audit, printed: Printed) -> None:
    batch = draw_batch(digits, 8)
    found = audit(part.model, batch.x, batch.y, attacker=Attacker(TrapWeights()))
    text = flat(printed(summary(found, data="digits")))
    assert "active: the client receives a layer that was tampered with" in text
    assert "trap-weights, independent weights, seed 0" in text


def test_batch_of_one(digits: Dataset, part: Audit, printed: Printed) -> None:
    batch = draw_batch(digits, 1)
    text = flat(printed(summary(audit(part.model, batch.x, batch.y), data="digits")))
    assert text.startswith(
        "The only sample was recovered from one gradient, with its label, to within"
    )


def test_more_than_the_grid_promises(whole: Audit, printed: Printed) -> None:
    text = flat(printed(summary(changed(whole, peeling_bound=6 / 8), data="digits")))
    assert "peeling bound 6 of 8" in text
    assert "2 more than the peeling bound" in text
    assert "cannot hide others" in text
    assert "more than the peeling bound" not in printed(summary(whole, data="digits"))


def test_reachable_samples_are_named_with_a_reason(whole: Audit, printed: Printed) -> None:
    outcomes = list(whole.score.outcomes)
    outcomes[2] = outcomes[5] = Outcome.FAINT
    outcomes[6] = Outcome.MISSED
    outcomes[7] = Outcome.ROUGH
    found = dataclasses.replace(
        changed(
            whole,
            outcomes=tuple(outcomes),
            readable=torch.tensor([outcome is Outcome.RECOVERED for outcome in outcomes]),
        ),
        signals=torch.full((8,), 3e-17),
    )
    text = flat(printed(summary(found, data="digits")))
    assert text.startswith("4 of 8 samples")
    assert (
        "1 inaccurate sample 7: certified, but the error exceeds 0.01 of the distance between"
        in text
    )
    faint = "2 too faint samples 2 and 5: within reach of peeling, but too faint for float64: each"
    assert f"{faint} contributes at most 3.0e-17 of" in text
    assert "1 missed sample 6: within reach of peeling, but the decoder stopped before" in text


def test_what_is_read_without_proof_is_the_headline(whole: Audit, printed: Printed) -> None:
    outcomes = [Outcome.RECOVERED] * 5 + [Outcome.INEXACT] * 3
    readable = torch.tensor([True] * 7 + [False])
    found = changed(whole, outcomes=tuple(outcomes), readable=readable)
    text = flat(printed(summary(found, data="digits")))
    assert text.startswith("7 of 8 samples can be read from one gradient, 5 of them with proof.")
    assert "with peeling 5 of 8" in text
    assert "including samples read without proof 7 of 8" in text
    assert "2 not proven samples 5 and 6: read correctly, but not certified" in text
    assert "1 too inexact sample 7:" in text
    nobody = changed(found, outcomes=(Outcome.INEXACT,) * 8)
    text = flat(printed(summary(nobody, data="digits")))
    assert text.startswith("7 of 8 samples can be read from one gradient, without proof.")


def test_faults_are_told(whole: Audit, printed: Printed) -> None:
    matches = whole.score.matches.clone()
    matches[0], matches[1] = -1, matches[2]
    outcomes = list(whole.score.outcomes)
    outcomes[int(whole.score.matches[0])] = Outcome.MISSED
    outcomes[int(whole.score.matches[1])] = Outcome.MISSED
    found = changed(whole, matches=matches, outcomes=tuple(outcomes))
    text = flat(printed(summary(found, data="digits")))
    assert "False certificates 1: a fault in gradpeel, please report it" in text
    assert "Repeated certificates 1: a fault in gradpeel" in text


def test_wrong_labels_are_not_called_right(whole: Audit, printed: Printed) -> None:
    right = whole.score.labels_right.clone()
    right[0] = False
    text = flat(printed(summary(changed(whole, labels_right=right), data="digits")))
    assert text.startswith(
        "All 8 samples were recovered from one gradient, to within one grey level."
    )
    assert "Labels 7 of 8 right" in text


def test_every_outcome_has_its_words(whole: Audit, printed: Printed) -> None:
    for outcome in Outcome:
        text = printed(summary(changed(whole, outcomes=(outcome,) * 8), data="digits"))
        assert ("Not recovered" in text) == (outcome is not Outcome.RECOVERED)


def test_unknown_labels_are_told(unlabelled: Audit, printed: Printed) -> None:
    text = flat(printed(summary(unlabelled, data="digits")))
    assert text.startswith(
        "All 8 samples were recovered from one gradient, to within one grey level."
    )
    assert "Labels unknown for 8 samples" in text
    assert "Later layers not used: kept from the decoder" in text
    assert "Batch size at least 8; it is not stated, and the update does not reveal it" in text
    some = changed(unlabelled, unlabelled=5, labels_judged=torch.arange(8) < 3)
    assert "Labels 0 of 3 right, unknown for 5 samples" in flat(printed(summary(some, data="d")))


def test_labels_are_not_spoken_of_where_there_are_none(whole: Audit, printed: Printed) -> None:
    judged = torch.zeros(8, dtype=torch.bool)
    found = changed(whole, labels_judged=judged, labels_right=judged)
    text = flat(printed(summary(found, data="digits")))
    assert text.startswith(
        "All 8 samples were recovered from one gradient, to within one grey level."
    )
    assert "Labels" not in text


def test_copies_are_told(doubled: Audit, printed: Printed) -> None:
    text = flat(printed(summary(doubled, data="digits")))
    assert text.startswith(WHOLE.replace("8", "11"))
    assert "Copies 3 samples occur in the batch more than once" in text
    assert "miscounted" not in text
    wrong = changed(doubled, multiplicities_wrong=torch.arange(8) < 2)
    text = flat(printed(summary(wrong, data="digits")))
    assert "Copies miscounted 2: a fault in gradpeel" in text


def test_warnings_come_first(whole: Audit, printed: Printed) -> None:
    warned = dataclasses.replace(whole.recovery, warnings=("this does not fit", "nor does that"))
    text = flat(printed(summary(dataclasses.replace(whole, recovery=warned), data="digits")))
    verdict, rest = text.split("Warning: this does not fit Warning: nor does that")
    assert verdict == f"{WHOLE} "
    assert rest.startswith(" Attacker")


def test_noise_is_told_and_near_is_not_exact(whole: Audit, printed: Printed) -> None:
    blurred = changed(whole, errors=torch.full((8,), 2e-2))
    text = flat(
        printed(summary(dataclasses.replace(blurred, client=Client(noise=1e-4)), data="digits"))
    )
    assert text.startswith(WHOLE.replace("to within one grey level", "approximately"))
    assert "float64 with noise of 0.0001;" in text


def test_certificates_in_between_are_counted_by_themselves(whole: Audit, printed: Printed) -> None:
    inexact = torch.arange(8) < 2
    found = changed(whole, inexact=inexact, matches=whole.score.matches.where(~inexact, -1))
    text = flat(printed(summary(found, data="digits")))
    assert "False certificates none" in text
    assert "Inexact certificates 2: off by 0.01 to 0.05 of the distance between samples" in text


def test_whole_batch_without_proof(whole: Audit, printed: Printed) -> None:
    unproven = dataclasses.replace(whole.recovery, complete=False, explained=1 - 2.4e-8)
    found = dataclasses.replace(whole, recovery=unproven)
    text = flat(printed(summary(found, data="digits")))
    assert (
        "not proven complete: the gradient of the recovered samples explains all but 2.4e-08 of it"
        in text
    )


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
