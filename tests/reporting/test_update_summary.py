from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import torch
from rich.console import RenderableType

from gradpeel import Audit, peel
from gradpeel.decoder import BatchSize
from gradpeel.reporting import peel_summary

Printed = Callable[[RenderableType], str]


def flat(text: str) -> str:
    lines = (line.strip("│ ") for line in text.splitlines()[1:-1])
    return " ".join(" ".join(lines).split())


def test_whole_update(whole: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(whole.recovery, classes=10)))
    assert text.startswith("All 8 samples behind this update were recovered")
    assert "complete and proven" in text
    assert f"Reason for stopping {whole.recovery.stopped}" in text
    assert "Evidence bias equation (all samples), next layer (all samples), data range (all" in text
    assert "Batch size 8, proven: the recovered samples account for the whole update" in text
    assert f"Estimated error at most {float(whole.recovery.errors.max()):.1e}" in text
    assert f"Largest residual {float(whole.recovery.residuals.max()):.1e}" in text
    assert "Samples are personal data" in text
    assert "Not recovered" not in text


def test_part_of_an_update(part: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(part.recovery, classes=10)))
    found = len(part.recovery)
    assert text.startswith(f"{found} of the 40 samples behind this update were recovered")
    assert "Not recovered is not safe" in text
    counted = {int(a): int(b) for a, b in re.findall(r"(\d+) [▁▂▃▄▅▆▇█](\d+)", text)}
    labels = part.recovery.labels.tolist()
    assert counted == {label: labels.count(label) for label in sorted(set(labels))}


def test_nothing_found(nothing: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(nothing.recovery, classes=10)))
    assert text.startswith("No sample of 8 in this update could be certified.")
    assert "Certificates" not in text


def test_copies_are_counted(doubled: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(doubled.recovery, classes=10)))
    assert text.startswith("All 11 samples behind this update were recovered")
    assert "Copies 3 samples occur in the batch more than once" in text
    counted = {int(a): int(b) for a, b in re.findall(r"(\d+) [▁▂▃▄▅▆▇█](\d+)", text)}
    labels = doubled.y.tolist()
    assert counted == {label: labels.count(label) for label in sorted(set(labels))}


def test_unknown_labels(unlabelled: Audit, printed: Printed) -> None:
    text = flat(printed(peel_summary(unlabelled.recovery, classes=10)))
    assert text.startswith("8 samples behind this update were recovered, each with a certificate")
    assert "Labels of the samples" not in text
    assert "Copies the number of copies is unknown for 8 samples" in text


def test_some_unknown_labels(whole: Audit, printed: Printed) -> None:
    some = dataclasses.replace(
        whole.recovery,
        labels=whole.recovery.labels.where(torch.arange(8) > 1, -1),
        label_counts=({}, {}, *whole.recovery.label_counts[2:]),
    )
    text = flat(printed(peel_summary(some, classes=10)))
    assert "each with its label (unknown for 2) and a certificate" in text
    assert "Labels of the samples" in text


def test_unknown_batch_size(whole: Audit, nothing: Audit, printed: Printed) -> None:
    unknown = [
        dataclasses.replace(
            found.recovery, batch_size=BatchSize(None, None, least, None), complete=False
        )
        for found, least in ((whole, 8), (nothing, 0))
    ]
    text = flat(printed(peel_summary(unknown[0], classes=10)))
    assert text.startswith("8 samples behind this update were recovered")
    assert "Batch size at least 8; it is not stated" in text
    assert "Not recovered is not safe" in text
    text = flat(printed(peel_summary(unknown[1], classes=10)))
    assert "Batch size unknown; it is not stated" in text
    assert text.startswith("No sample in this update could be certified.")


def test_a_wrong_batch_size_is_told_first(whole: Audit, printed: Printed) -> None:
    wrong = dataclasses.replace(whole.update, batch_size=9)
    recovery = peel(whole.model, wrong, sample_shape=(8, 8))
    assert len(recovery.warnings) == 1
    text = flat(printed(peel_summary(recovery, classes=10)))
    first, second = text.index("Warning: "), text.index("Batch size 9 as stated, but the weight")
    assert text.index("No ground truth was used.") < first < second
    assert recovery.warnings[0] in text
    assert "the weight of one sample suggests 8" in text


def test_no_sample_is_shown(whole: Audit, printed: Printed) -> None:
    """The text is the same whatever the samples are."""
    other = dataclasses.replace(whole.recovery, samples=torch.randn_like(whole.recovery.samples))
    shown = [printed(peel_summary(one, classes=10)) for one in (whole.recovery, other)]
    assert shown[0] == shown[1]


def test_evidence_is_weighed_in_digits(whole: Audit, printed: Printed) -> None:
    scores = torch.linspace(12.4, 80, 8)
    weighed = dataclasses.replace(whole.recovery, scores=scores)
    text = flat(printed(peel_summary(weighed, classes=10)))
    assert "Evidence score at least 12 decimal digits over all equations" in text
    # A score is no probability.
    assert not re.search(r"(?i)chance|luck|probab|odds", text)


def test_update_explained_although_samples_are_missing(part: Audit, printed: Printed) -> None:
    faint = dataclasses.replace(part.recovery, faint=True, explained=1 - 1e-12)
    text = flat(printed(peel_summary(faint, classes=10)))
    assert "explains all but 1.0e-12 of it" in text
    assert "the missing samples are too faint" in text


def test_many_classes(whole: Audit, printed: Printed) -> None:
    assert len(printed(peel_summary(whole.recovery, classes=60_000)).splitlines()) < 60
