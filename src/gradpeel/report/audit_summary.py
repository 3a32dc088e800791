"""What a person reads after `gradpeel audit`.

First the verdict and who can do this, then how it compares and how far to trust it, last what it
does not show: a sample that one attack did not rebuild from one gradient is not thereby safe.

Example:
    >>> import numpy as np
    >>> from rich.console import Console
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> model = mlp(30, 2, (200,), rng=np.random.default_rng(0))
    >>> Console(width=80).print(summary(audit(model, batch.x, batch.y), data="breast_cancer"))
    ╭─ gradpeel audit: breast_cancer ──────...
    │  All 4 samples were rebuilt exactly, with labels, from one gradient. ...
"""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradpeel.audit import Audit
from gradpeel.report.account import batch_size, completeness, copies, evidence
from gradpeel.report.bars import round_bars
from gradpeel.report.layout import all_of, cautions, facts, headed, panel, was
from gradpeel.report.words import counted, listing, percent, printable, scientific
from gradpeel.scoring import FALSE, RIGHT, Outcome, Score

__all__ = ["summary"]

EXACT = 1e-3
"""Samples nearer than this to the true ones, in units of the data's range, are called exact."""

_WEIGHTS = {
    "keep": "the model's own weights",
    "gaussian": "Gaussian weights",
    "torch": "PyTorch's default weights",
    "independent": "independent weights",
    "mirrored": "mirrored weights",
}

_WHY = {
    Outcome.ROUGH: ("rough", f"certified, but off by more than {RIGHT:g} of the data's range"),
    Outcome.FAINT: (
        "faint",
        "reachable, but too little for {precision}: at most {share} of what they were summed with",
    ),
    Outcome.COARSE: (
        "not provable",
        "reachable, but {precision} has fewer digits than a certificate needs",
    ),
    Outcome.INEXACT: (
        "inexact",
        "reachable, but what the cascade leaves of them is too inexact to prove",
    ),
    Outcome.HIDDEN: ("hidden", "reachable only behind one that was not recovered"),
    Outcome.MISSED: ("missed", "reachable, but the decoder stopped short of them"),
    Outcome.UNREACHED: ("not reached", "no neuron comes to isolate them"),
}
"""What a summary calls samples that were not rebuilt, and why that is so."""


def summary(audit: Audit, *, data: str) -> RenderableType:
    """Tell what an audit found: verdict, adversary, rounds, comparison, trust, and what is open.

    What does not fit together comes right after the verdict.

    Args:
        audit: the simulated round.
        data: what the data is called.
    """
    parts = [_verdict(audit)]
    if audit.recovery.warnings:
        parts.append(cautions(audit.recovery.warnings))
    parts.append(facts(_scene(audit)))
    if len(audit.recovery):
        counts = [round_.certified for round_ in audit.recovery.trace]
        parts.append(headed("How many fell in which round", round_bars(counts)))
    parts.append(headed("Compared with", _comparison(audit)))
    parts.append(headed("How far to trust it", facts(_trust(audit))))
    missing = _missing(audit)
    if missing:
        parts.append(headed("Not rebuilt", facts(missing)))
    parts.append(headed("What this does not show", Text(_limits(audit))))
    return panel(f"gradpeel audit: {printable(data)}", parts)


def _verdict(audit: Audit) -> RenderableType:
    score = audit.score
    if not score.recovered:
        verdict = f"No sample of {score.batch_size} was rebuilt from this gradient."
        return Text(verdict, style="bold yellow")
    some = f"{score.recovered} of {counted(score.batch_size, 'sample')}"
    subject = all_of(score.batch_size) if score.recovered == score.batch_size else some
    exactly = " exactly" if float(score.distances[score.matches >= 0].max()) < EXACT else ""
    labels = ", with labels," if score.label_accuracy == 1 and not score.unlabelled else ""
    verdict = f"{subject} {was(score.recovered)} rebuilt{exactly}{labels} from one gradient."
    return Text(verdict, style="bold red")


def _scene(audit: Audit) -> list[tuple[str, str]]:
    """Who attacks whom, and what the attacker knows."""
    rows = [
        ("Who can do this", _adversary(audit)),
        ("Design", _design(audit)),
        ("Setting", _setting(audit)),
        ("Batch size", batch_size(audit.recovery)),
    ]
    if audit.without_tail is not None:
        why = printable(audit.without_tail, most=200)
        rows.append(("Tail", f"not used: {why}"))
    return rows


def _adversary(audit: Audit) -> str:
    if audit.design.active:
        how = "active: the client receives a layer that was tampered with"
    else:
        how = "passive: nothing is tampered with, so the client has nothing to notice"
    return f"{printable(audit.design.adversary, most=400)} ({how})"


def _design(audit: Audit) -> str:
    weights = _WEIGHTS.get(audit.design.weights, audit.design.weights)
    return printable(f"{audit.design.name}, {weights}, seed {audit.seed}", most=200)


def _setting(audit: Audit) -> str:
    neurons, batch_size = audit.exposure.grid.shape
    return (
        f"batch of {batch_size}, {counted(neurons, 'neuron')} on "
        f"{counted(audit.features, 'input')}, {audit.loss.name}, {_precision(audit)}; "
        f"decoded within {math.ceil(audit.seconds * 10) / 10:.1f} seconds"
    )


def _precision(audit: Audit) -> str:
    """How exact the update is."""
    dtype = str(audit.update.dtype).removeprefix("torch.")
    return f"{dtype} with noise of {audit.noise:.2g}" if audit.noise else dtype


def _comparison(audit: Audit) -> RenderableType:
    score = audit.score
    reach = round(score.oracle_rate * score.batch_size)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, number, style in (
        ("a single pass, no peeling", round(score.baseline_rate * score.batch_size), ""),
        ("this attack", score.recovered, "bold"),
        ("peeling can reach", reach, ""),
    ):
        cells = name, f"{number} of {score.batch_size}", percent(number / score.batch_size)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    if score.recovered <= reach:
        return table
    note = (
        f"{score.recovered - reach} more than peeling the activation grid: samples with next to no "
        "gradient stand in the grid, but they cannot hide others."
    )
    return Group(table, Text(note))


def _trust(audit: Audit) -> list[tuple[str, str]]:
    score, recovery = audit.score, audit.recovery
    rows = []
    if len(recovery):
        rows.append(("Evidence", evidence(recovery)))
    if labels := _labels(score):
        rows.append(("Labels", labels))
    if several := copies(recovery):
        rows.append(("Copies", several))
    if score.max_abs_error is not None:
        low, high = float(audit.x.min()), float(audit.x.max())
        error = f"{scientific(score.max_abs_error)} in any entry"
        rows.append(("Worst error", f"{error}; the data runs from {low:.4g} to {high:.4g}"))
    rows.append(("False certificates", _fault(score.false_certificates)))
    if score.inexact_certificates:
        between = f"off by {RIGHT:g} to {FALSE:g} of the data's range, neither right nor false"
        rows.append(("Inexact certificates", f"{score.inexact_certificates}: {between}"))
    if score.repeats:
        rows.append(("Repeats", _fault(score.repeats)))
    if score.wrong_multiplicities:
        rows.append(("Copies miscounted", _fault(score.wrong_multiplicities)))
    rows.append(("Whole update", completeness(recovery)))
    return rows


def _labels(score: Score) -> str:
    """How many labels are right and how many are unknown; empty where there is nothing to say."""
    judged, right = int(score.labels_judged.sum()), int(score.labels_right.sum())
    told = [f"{right} of {judged} right"] if judged else []
    if score.unlabelled:
        told.append(f"not known for {counted(score.unlabelled, 'sample')}")
    return ", ".join(told)


def _fault(number: int) -> str:
    return f"{number}: a fault of gradpeel, please report it" if number else "none"


def _missing(audit: Audit) -> list[tuple[str, str]]:
    """What became of the others, by name where peeling could reach them."""
    rows = []
    for outcome, (name, why) in _WHY.items():
        them = [i for i, became in enumerate(audit.score.outcomes) if became is outcome]
        if not them:
            continue
        said = why.format(precision=_precision(audit), share=_largest_share(audit, them))
        # Whoever no peeling reaches, or no update of this dtype shows, is no single case.
        by_name = outcome not in {Outcome.COARSE, Outcome.UNREACHED}
        rows.append((f"{len(them)} {name}", f"no. {listing(them)}: {said}" if by_name else said))
    return rows


def _largest_share(audit: Audit, samples: list[int]) -> str:
    return scientific(float(audit.signals[samples].max()))


def _limits(audit: Audit) -> str:
    if audit.score.recovered == audit.score.batch_size:
        return (
            "This is one batch and one network. Others give away more or less: no number here "
            "carries over to them."
        )
    return (
        "Not recovered is not safe. This is one gradient and one attack: another batch, another "
        "round, another design of the layer or another attack may reach the rest."
    )
