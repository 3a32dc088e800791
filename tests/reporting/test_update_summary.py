from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import torch
from rich.console import RenderableType

from gradpeel import Audit, peel
from gradpeel.reporting import peel_summary

Printed = Callable[[RenderableType], str]


def flat(text: str) -> str:
    lines = (line.strip("│ ") for line in text.splitlines()[1:-1])
    return " ".join(" ".join(lines).split())


def test_whole_update(whole: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(whole.recovery, classes=10)))
    assert text.startswith("All 8 samples behind this update were read out of it")
    assert "complete, and proven" in text
    assert f"Why it stopped {whole.recovery.stopped}" in text
    assert "Evidence bias equation for all, next layer for all, data range for all" in text
    assert "Batch size 8, as stated (8 samples agree)" in text
    assert f"Estimated error at most {float(whole.recovery.errors.max()):.1e}" in text
    assert f"Worst residual {float(whole.recovery.residuals.max()):.1e}" in text
    assert "Samples are personal data" in text
    assert "Not recovered" not in text


def test_part_of_an_update(part: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(part.recovery, classes=10)))
    found = len(part.recovery)
    assert text.startswith(f"{found} of the 40 samples behind this update were read out of it")
    assert "Not recovered is not safe" in text
    counted = {int(a): int(b) for a, b in re.findall(r"label (\d+) \S+ (\d+)", text)}
    labels = part.recovery.labels.tolist()
    assert counted == {label: labels.count(label) for label in sorted(set(labels))}


def test_nothing_found(nothing: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(nothing.recovery, classes=10)))
    assert text.startswith("No sample of 8 could be read out of this update.")
    assert "Certificates" not in text


def test_copies_are_counted(doubled: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(doubled.recovery, classes=10)))
    assert text.startswith("All 11 samples behind this update were read out of it")
    assert "Copies 3 samples stand in the batch more than once" in text
    counted = {int(a): int(b) for a, b in re.findall(r"label (\d+) \S+ (\d+)", text)}
    labels = doubled.y.tolist()
    assert counted == {label: labels.count(label) for label in sorted(set(labels))}


def test_unknown_labels(unlabelled: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(unlabelled.recovery, classes=10)))
    assert text.startswith("All 8 samples behind this update were read out of it, each with a cert")
    assert "Their labels" not in text
    assert "Copies of 8 samples it is not known how many there are" in text


def test_some_unknown_labels(whole: Audit, printed: Printed) -> None:
    some = dataclasses.replace(
        whole.recovery,
        labels=whole.recovery.labels.where(torch.arange(8) > 1, -1),
        label_counts=({}, {}, *whole.recovery.label_counts[2:]),
    )
    text = flat(printed(peel_summary(some, classes=10)))
    assert "each with its label (not known for 2) and a certificate" in text
    assert "Their labels" in text


def test_unknown_batch_size(whole: Audit, nothing: Audit, printed: Printed) -> None:
    unknown = [
        dataclasses.replace(found.recovery, batch_size=None, stated_batch_size=None)
        for found in (whole, nothing)
    ]
    text = flat(printed(peel_summary(unknown[0], classes=10)))
    assert text.startswith("8 samples behind this update were read out of it")
    assert "Batch size not known" in text
    assert "Not recovered is not safe" in text
    text = flat(printed(peel_summary(unknown[1], classes=10)))
    assert text.startswith("No sample could be read out of this update.")


def test_a_wrong_batch_size_is_told_first(whole: Audit, printed: Printed) -> None:
    wrong = dataclasses.replace(whole.update, batch_size=9)
    recovery = peel(whole.model, wrong, sample_shape=(8, 8))
    assert len(recovery.warnings) == 1
    text = flat(printed(peel_summary(recovery, classes=10)))
    first, second = text.index("Warning: "), text.index("Batch size 8, found in the update")
    assert text.index("No ground truth was used.") < first < second
    assert recovery.warnings[0] in text
    assert ", not 9 as stated" in text


def test_no_sample_is_shown(whole: Audit, printed: Printed) -> None:
    """The text is the same whatever the samples are."""
    other = dataclasses.replace(whole.recovery, samples=torch.randn_like(whole.recovery.samples))
    shown = [printed(peel_summary(one, classes=10)) for one in (whole.recovery, other)]
    assert shown[0] == shown[1]


def test_a_vanishing_chance_is_not_zero(whole: Audit, printed: Printed) -> None:
    certain = dataclasses.replace(whole.recovery, chances=torch.zeros(8))
    assert "below 1e-300" in flat(printed(peel_summary(certain, classes=10)))


def test_update_explained_although_samples_are_missing(part: Audit, printed: Printed) -> None:
    faint = dataclasses.replace(part.recovery, faint=True, explained=1 - 1e-12)
    text = flat(printed(peel_summary(faint, classes=10)))
    assert "explains all but 1.0e-12 of it" in text
    assert "what is missing is too faint" in text


def test_many_classes(whole: Audit, printed: Printed) -> None:
    assert len(printed(peel_summary(whole.recovery, classes=60_000)).splitlines()) < 60
