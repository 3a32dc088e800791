"""What an audit found, in sentences: the terminal and the page say it in the same words.

Example:
    >>> import numpy as np
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> found = audit(mlp(30, 2, (200,), rng=np.random.default_rng(0)), batch.x, batch.y)
    >>> verdict(found)
    'All 4 samples were rebuilt exactly, with labels, from one gradient.'
    >>> adversary(found)
    'a server that follows the protocol and only watches (passive: nothing is tampered with, so ...'
"""

from __future__ import annotations

import math

from gradpeel.audit import Audit
from gradpeel.reporting.account import batch_size, completeness, copies, evidence
from gradpeel.reporting.layout import all_of, was
from gradpeel.reporting.words import counted, listing, printable, scientific
from gradpeel.scoring import FALSE, RIGHT, Outcome, Score

__all__ = ["adversary", "comparison", "limits", "missing", "scene", "trust", "verdict"]

EXACT = 1e-3
"""Samples nearer than this to the true ones, relative to the typical distance between two samples,
are called exact."""

_WEIGHTS = {
    "keep": "the model's own weights",
    "gaussian": "Gaussian weights",
    "torch": "PyTorch's default weights",
    "independent": "independent weights",
    "mirrored": "mirrored weights",
}

_WHY = {
    Outcome.ROUGH: (
        "rough",
        f"certified, but off by more than {RIGHT:g} of the distance between samples",
    ),
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
    Outcome.UNREACHED: (
        "not reached",
        "no neuron comes to isolate them, and the row cascade did not find them",
    ),
}
"""What a summary calls samples that were not rebuilt, and why that is so."""


def verdict(audit: Audit) -> str:
    """How many samples were rebuilt, how well, and whether with their labels: one sentence."""
    score = audit.score
    if not score.read:
        return f"No sample of {score.batch_size} was rebuilt from this gradient."
    if score.recovered < score.read:
        proven = f"{score.recovered} of them with proof" if score.recovered else "without proof"
        subject = f"{score.read} of {counted(score.batch_size, 'sample')}"
        return f"{subject} can be read out of one gradient, {proven}."
    some = f"{score.recovered} of {counted(score.batch_size, 'sample')}"
    subject = all_of(score.batch_size) if score.recovered == score.batch_size else some
    exactly = " exactly" if float(score.distances[score.matches >= 0].max()) < EXACT else ""
    labels = ", with labels," if score.label_accuracy == 1 and not score.unlabelled else ""
    return f"{subject} {was(score.recovered)} rebuilt{exactly}{labels} from one gradient."


def scene(audit: Audit) -> list[tuple[str, str]]:
    """Who attacks whom, and what the attacker knows."""
    rows = [
        ("Who can do this", adversary(audit)),
        ("Design", _design(audit)),
        ("Setting", _setting(audit)),
        ("Batch size", batch_size(audit.recovery)),
    ]
    if audit.without_tail is not None:
        why = printable(audit.without_tail, most=200)
        rows.append(("Tail", f"not used: {why}"))
    return rows


def adversary(audit: Audit) -> str:
    """Who can do this, and whether the client could notice."""
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


def comparison(audit: Audit) -> tuple[list[tuple[str, int]], str | None]:
    """How many samples each way of reading the gradient gets, and a note where that needs one.

    Returns:
        Names with numbers of samples: a single look, peeling, this attack with proof and in all,
        and the peeling bound. The note tells of samples beyond that bound.
    """
    score = audit.score
    bound = round(score.peeling_bound * score.batch_size)
    alone = int((score.readable & audit.exposure.isolated).sum())
    by_rows = min(audit.recovery.found_by_rows, score.recovered)
    rows = [
        ("a single look, no peeling", alone),
        ("peeling, with proof", score.recovered - by_rows),
        ("this attack, with proof", score.recovered),
        ("this attack, with or without proof", score.read),
        ("peeling bound", bound),
    ]
    if by_rows:
        others = "No neuron stands alone in this batch." if bound == 0 else ""
        subject = f"{by_rows} of {counted(score.batch_size, 'sample')}"
        told = f"{subject} {was(by_rows)} read by the row cascade, which needs no neuron to itself."
        return rows, f"{others} {told}".strip()
    if score.recovered <= bound:
        return rows, None
    note = (
        f"{score.recovered - bound} more than the peeling bound: samples with next to no gradient "
        "stand in the activation grid, but they cannot hide others."
    )
    return rows, note


def trust(audit: Audit) -> list[tuple[str, str]]:
    """How far the recovery is to be trusted: the evidence, and how it stands against the truth."""
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
        between = f"off by {RIGHT:g} to {FALSE:g} of the distance between samples"
        count = score.inexact_certificates
        rows.append(("Inexact certificates", f"{count}: {between}, neither right nor false"))
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


def missing(audit: Audit) -> list[tuple[str, str]]:
    """What became of the others, by name where peeling could reach them."""
    rows = []
    recovered = {Outcome.RECOVERED, Outcome.ROUGH}
    each = list(zip(audit.score.outcomes, audit.score.readable.tolist(), strict=True))
    unproven = [i for i, (became, read) in enumerate(each) if read and became not in recovered]
    if unproven:
        said = f"no. {listing(unproven)}: read, but not proven; {audit.recovery.stopped}"
        rows.append((f"{len(unproven)} not proven", said))
    for outcome, (name, why) in _WHY.items():
        them = [
            i
            for i, (became, read) in enumerate(each)
            if became is outcome and (outcome in recovered or not read)
        ]
        if not them:
            continue
        said = why.format(precision=_precision(audit), share=_largest_share(audit, them))
        # Whoever no peeling reaches, or no update of this dtype shows, is no single case.
        by_name = outcome not in {Outcome.COARSE, Outcome.UNREACHED}
        rows.append((f"{len(them)} {name}", f"no. {listing(them)}: {said}" if by_name else said))
    return rows


def _largest_share(audit: Audit, samples: list[int]) -> str:
    return scientific(float(audit.signals[samples].max()))


def limits(audit: Audit) -> str:
    """What the audit does not show."""
    if audit.score.recovered == audit.score.batch_size:
        return (
            "This is one batch and one network. Others give away more or less: no number here "
            "carries over to them."
        )
    return (
        "Not recovered is not safe. This is one gradient and one attack: another batch, another "
        "round, another design of the layer or another attack may reach the rest."
    )
