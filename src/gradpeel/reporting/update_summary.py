"""What a person reads after `gradpeel peel`: counts, labels, certificates; never a sample.

Example:
    >>> import numpy as np
    >>> from rich.console import Console
    >>> from gradpeel import local_update, peel
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> model = mlp(30, 2, (200,), rng=np.random.default_rng(0))
    >>> recovery = peel(model, local_update(model, batch.x, batch.y))
    >>> Console(width=80).print(peel_summary(recovery, classes=2))
    ╭─ gradpeel peel ──────...
    │  All 4 samples behind this update were recovered, each with its label and a ...
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from gradpeel.decoder import Recovery
from gradpeel.reporting.account import batch_size, completeness, copies, evidence, what_came_back
from gradpeel.reporting.bars import LabelLine, round_bars
from gradpeel.reporting.layout import all_of, cautions, facts, headed, panel, was
from gradpeel.reporting.words import counted, scientific

__all__ = ["peel_summary"]


def peel_summary(recovery: Recovery, *, classes: int, hint: str | None = None) -> RenderableType:
    """What was decoded from somebody's update, and what the certificates rest on.

    Warnings come right after the verdict.

    Args:
        recovery: what `gradpeel.peel` found.
        classes: number of classes of the network.
        hint: what to try next, in a sentence, if there is something.
    """
    name = f"{recovery.noun}s".capitalize()
    parts = [_verdict(recovery)]
    if hint is not None:
        parts.append(Text(hint))
    if recovery.warnings:
        parts.append(cautions(recovery.warnings))
    parts.append(facts(_whole(recovery)))
    if len(recovery):
        labels = recovery.count_labels(classes).tolist()
        parts.append(headed(f"{name} recovered per round", round_bars(recovery.by_round)))
        if any(labels):
            parts.append(headed("Labels of the samples", LabelLine(labels)))
        parts.append(headed("Certificates", facts(_certificates(recovery))))
    parts.append(
        Text(
            f"{name} are personal data. None is shown here, and none is written to a file unless "
            "you ask for it with --samples."
        )
    )
    if not recovery.complete:
        parts.append(Text("Not recovered is not safe: this is one attack on one update."))
    return panel("gradpeel peel", parts)


def _verdict(recovery: Recovery) -> RenderableType:
    found, size, noun = recovery.found, recovery.batch_size.value, recovery.noun
    if not found:
        of = "" if size is None else f" of {size:,}"
        return Text(f"No {noun}{of} in this update could be certified.", style="bold yellow")
    some = counted(found, noun) if size is None else f"{found:,} of the {counted(size, noun)}"
    subject = all_of(size, noun) if found == size else some
    verdict = (
        f"{subject} behind this update {was(found)} recovered, each with "
        f"{_labels(recovery)}a certificate. No ground truth was used."
    )
    return Text(verdict, style="bold red")


def _labels(recovery: Recovery) -> str:
    unknown = int((recovery.labels < 0).sum())
    if unknown == len(recovery):
        return ""
    return f"its label (unknown for {unknown:,}) and " if unknown else "its label and "


def _whole(recovery: Recovery) -> list[tuple[str, str]]:
    rows = [("Batch size", batch_size(recovery)), ("Whole update", completeness(recovery))]
    if (came_back := what_came_back(recovery)) is not None:
        rows.insert(0, ("Recovered", came_back))
    if several := copies(recovery):
        rows.append(("Copies", several))
    return [*rows, ("Reason for stopping", recovery.stopped)]


def _certificates(recovery: Recovery) -> list[tuple[str, str]]:
    residual, fewest = float(recovery.residuals.max()), int(recovery.equations.min())
    score, met = float(recovery.scores.min()), scientific(recovery.mismatch)
    error = scientific(float(recovery.errors.max()))
    return [
        ("Evidence", evidence(recovery)),
        ("Largest residual", f"{scientific(residual)}, over {counted(fewest, 'equation')} or more"),
        ("Estimated error", f"at most {error} of the typical size of an entry"),
        ("Evidence score", f"at least {score:.0f} decimal digits over all equations"),
        (
            "Cross-check",
            f"the {recovery.noun}s reproduce the explained part of the update to {met}",
        ),
    ]
