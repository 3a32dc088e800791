"""Which samples took part, in the terminal, in JSON and on the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from rich.console import RenderableType

from gradpeel import Audit, Client, audit, report
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.membership import Membership, Verdict
from gradpeel.reporting import summary
from gradpeel.reporting.members import membership
from gradpeel.scoring import Outcome

MEANING = (
    "Even where a sample cannot be read, the server can test whether a record that it already "
    "holds took part."
)


def judged(found: Audit, verdicts: list[Verdict], reasons: list[str | None]) -> Audit:
    """The same audit with other answers of the membership test."""
    other = dataclasses.replace(found)
    held: Membership = dataclasses.replace(
        found.membership, verdicts=tuple(verdicts), reasons=tuple(reasons)
    )
    other.__dict__["membership"] = held
    return other


def test_all_took_part(whole: Audit) -> None:
    assert membership(whole) == f"The update shows that all 8 samples took part. {MEANING}"


def test_samples_that_were_not_read_are_counted(part: Audit) -> None:
    missed = part.score.outcomes.count(Outcome.UNREACHED)
    assert missed == 29
    assert membership(part) == (
        "The update shows that all 40 samples took part, 29 of them although the attack did not "
        f"read them. {MEANING}"
    )


def test_nobody_was_read(whole: Audit) -> None:
    score = dataclasses.replace(
        whole.score, outcomes=(Outcome.MISSED,) * 8, readable=torch.zeros(8, dtype=torch.bool)
    )
    assert membership(dataclasses.replace(whole, score=score)) == (
        "The update shows that all 8 samples took part, although the attack did not read them. "
        f"{MEANING}"
    )


def test_nothing_can_be_decided(nothing: Audit) -> None:
    assert nothing.membership.count("unknown") == 8
    assert membership(nothing) == (
        "The membership test cannot decide: "
        "the batch has at least as many samples as the layer can distinguish, so any record would "
        "match."
    )


def test_some_are_undecided_and_the_main_reason_is_named(whole: Audit) -> None:
    found = judged(
        whole,
        ["in", "in", "out", "unknown", "unknown", "unknown", "in", "in"],
        [None, None, None, "too faint", "too close", "too faint", None, None],
    )
    assert membership(found) == (
        "The update shows that 4 of 8 samples took part. It shows that 1 sample did not take part. "
        "3 of 8 samples were read, so they took part. The test that recognises a record without "
        f"reading it cannot decide here: too faint (2 of 3 cases). {MEANING}"
    )


@pytest.mark.slow
def test_samples_that_no_step_drew_took_no_part(digits: Dataset, part: Audit) -> None:
    batch = draw_batch(digits, 30)
    client = Client(lr=0.1, local_steps=2, local_batch_size=8)
    found = audit(part.model, batch.x, batch.y, client=client)
    assert (found.membership.count("in"), found.membership.count("out")) == (16, 14)
    assert found.wrong_memberships == 0
    assert "It shows that 14 samples did not take part." in membership(found)


@pytest.mark.parametrize(("verdict", "wrong"), [("in", 0), ("unknown", 0), ("out", 8)])
def test_wrong_answers_are_a_fault(
    verdict: Verdict, wrong: int, whole: Audit, printed: Callable[[RenderableType], str]
) -> None:
    found = judged(whole, [verdict] * 8, ["too faint" if verdict == "unknown" else None] * 8)
    assert found.wrong_memberships == found.as_dict()["wrong_memberships"] == wrong
    text = printed(summary(found, data="digits"))
    assert ("8: a fault in gradpeel" in text) == ("Wrong memberships" in text) == (wrong > 0)


def test_a_sample_without_a_trace_cannot_be_recognised(whole: Audit) -> None:
    grid = whole.exposure.grid.clone()
    grid[:, 3] = False
    silent = dataclasses.replace(whole.exposure, grid=grid)
    assert dataclasses.replace(whole, exposure=silent).wrong_memberships == 1


@pytest.mark.parametrize("kind", ["whole", "part", "nothing"])
def test_terminal_and_page_say_the_same(
    kind: str, request: pytest.FixtureRequest, printed: Callable[[RenderableType], str]
) -> None:
    found: Audit = request.getfixturevalue(kind)
    text = " ".join(line.strip("│ ") for line in printed(summary(found, data="d")).splitlines())
    assert f"Membership {membership(found)}" in " ".join(text.split())
    page = report(found)
    assert page.payload.story.membership == membership(found)
    assert f"<b>Membership.</b> {membership(found)}".replace('"', "&#34;") in page.html
    told = [sample.membership for sample in page.payload.samples]
    assert told == list(found.membership.verdicts)


def test_it_is_not_computed_before_it_is_shown(digits: Dataset, part: Audit) -> None:
    batch = draw_batch(digits, 4)
    found = audit(part.model, batch.x, batch.y)
    assert "membership" not in found.__dict__
    found.as_dict()
    assert "membership" in found.__dict__


def test_undecided_samples_of_which_some_were_read(whole: Audit) -> None:
    outcomes = (Outcome.MISSED,) * 2 + (Outcome.RECOVERED,) * 6
    score = dataclasses.replace(
        whole.score, outcomes=outcomes, readable=torch.tensor([False] * 2 + [True] * 6)
    )
    some = dataclasses.replace(whole, score=score)
    verdicts: list[Verdict] = ["unknown", "unknown", "unknown", "in", "in", "in", "in", "in"]
    found = judged(some, verdicts, ["too faint"] * 3 + [None] * 5)
    assert membership(found) == (
        "The update shows that 5 of 8 samples took part. The membership test cannot decide for 3 "
        "samples: too faint. Samples that were read took part in any case. "
        f"{MEANING}"
    )
