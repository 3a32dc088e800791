"""What an audit found, in sentences: the terminal and the page use the same ones.

Example:
    >>> import numpy as np
    >>> from gradpeel import audit
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> batch = draw_batch(load("breast_cancer"), 4)
    >>> found = audit(mlp(30, 2, (200,), rng=np.random.default_rng(0)), batch.x, batch.y)
    >>> verdict(found)
    'All 4 samples were recovered from one gradient, with their labels, to ... digits.'
    >>> adversary(found)
    'a server that follows the protocol and only watches (passive: nothing is changed, so ...'
"""

from __future__ import annotations

import math

from gradpeel.audit import Audit
from gradpeel.reporting.account import batch_size, completeness, copies, evidence, what_came_back
from gradpeel.reporting.fidelity import fidelity
from gradpeel.reporting.layout import all_of, was
from gradpeel.reporting.matching import rounds_of
from gradpeel.reporting.reasons import precision
from gradpeel.reporting.rounds import aggregation, local_training, what_was_sent
from gradpeel.reporting.tally import Way, tally, ways
from gradpeel.reporting.words import counted, printable, scientific
from gradpeel.scoring import FALSE, RIGHT, Score

__all__ = [
    "adversary",
    "came_back",
    "comparison",
    "limits",
    "setup",
    "severity",
    "trust",
    "verdict",
    "weights",
]

_WEIGHTS = {
    "keep": "the model's own weights",
    "gaussian": "Gaussian weights",
    "torch": "PyTorch's default weights",
    "independent": "independent weights",
    "mirrored": "mirrored weights",
}


def verdict(audit: Audit) -> str:
    """How many samples were recovered, whether with labels, and how closely: one sentence."""
    score, counts = audit.score, tally(audit)
    noun = audit.recovery.noun
    size = counted(counts.batch_size, noun)
    if not counts.read:
        them = f"the only {noun}" if counts.batch_size == 1 else f"any of the {size}"
        source = what_was_sent(audit).replace("one", "this", 1)
        return f"This attack did not recover {them} from {source}."
    if counts.unproven:
        proven = f"{counts.recovered:,} of them with proof" if counts.recovered else "without proof"
        return f"{counts.read:,} of {size} can be read from {what_was_sent(audit)}, {proven}."
    subject = (
        f"{counts.recovered:,} of {size}" if counts.missed else all_of(counts.batch_size, noun)
    )
    parts = [f"{subject} {was(counts.recovered)} recovered from {what_was_sent(audit)}"]
    if score.label_accuracy == 1 and not score.unlabelled:
        parts.append("with its label" if counts.recovered == 1 else "with their labels")
    parts.append(fidelity(audit))
    return f"{', '.join(filter(None, parts))}."


def severity(audit: Audit) -> tuple[str, str]:
    """How bad that is, in the words of a privacy review: a name and a sentence."""
    counts = tally(audit)
    if not counts.read:
        return _unread(audit)
    is_input, noun = audit.recovery.space == "input", audit.recovery.noun
    what = "exposure of records" if is_input else "exposure of feature vectors"
    if not counts.missed:
        whose = "the whole batch" if audit.update.clients == 1 else "all clients' samples"
        whole = whose if is_input else f"the feature vectors of {whose}"
        return f"Complete {what}", f"Anyone who sees this update can read {whole}."
    degree = "Major" if 2 * counts.read >= counts.batch_size else "Partial"
    return f"{degree} {what}", (
        f"Anyone who sees this update can read {counts.read:,} of its "
        f"{counted(counts.batch_size, noun)}."
    )


def _unread(audit: Audit) -> tuple[str, str]:
    """What an update exposes where no sample was read: membership, tokens, or nothing."""
    if not audit.refuses_membership and audit.membership.count("in"):
        return "Exposure of membership", (
            "This attack read no sample, but anyone who sees this update can tell whether a "
            "record that they hold took part."
        )
    if any(len(tokens) for tokens in audit.leaked_tokens.values()):
        return "Exposure of tokens", (
            "This attack read no sample, but the update names the tokens that occurred in them."
        )
    return "No exposure found", "This attack read nothing, which is not proof of protection."


def came_back(audit: Audit, *, is_inverted: bool = False) -> str | None:
    """What the recovered things are, where they are not all that enters the network."""
    if audit.entry is None:
        return what_came_back(audit.recovery, is_inverted=is_inverted)
    entry = printable(audit.entry, most=80)
    return f"input `{entry}` of each sample; the network's other inputs were not read"


def setup(audit: Audit, *, is_inverted: bool = False) -> list[tuple[str, str]]:
    """Who attacks whom, and what the attacker knows."""
    rows = [
        ("Attacker", adversary(audit)),
        ("Design", _design(audit)),
        ("Setting", _setting(audit)),
        *_training(audit),
        *((("Secure aggregation", summed),) if (summed := aggregation(audit)) else ()),
        ("Batch size", batch_size(audit.recovery)),
    ]
    if (what := came_back(audit, is_inverted=is_inverted)) is not None:
        rows.insert(0, ("Recovered", what))
    if audit.without_tail is not None:
        why = printable(audit.without_tail, most=200)
        how = "used for labels only" if bool((audit.recovery.labels >= 0).any()) else "not used"
        rows.append(("Later layers", f"{how}: {why}"))
    return rows


def adversary(audit: Audit) -> str:
    """Who can do this, and whether the client could notice."""
    if audit.design.active:
        how = "active: the client receives a layer that was tampered with"
    else:
        how = "passive: nothing is changed, so the client cannot notice anything"
    return f"{printable(audit.design.adversary, most=400)} ({how})"


def weights(audit: Audit) -> str:
    """What the weights of the first layer are."""
    return printable(_WEIGHTS.get(audit.design.weights, audit.design.weights), most=80)


def _design(audit: Audit) -> str:
    return printable(f"{audit.design.name}, {weights(audit)}, seed {audit.seed}", most=200)


def _setting(audit: Audit) -> str:
    neurons, batch_size = audit.exposure.grid.shape
    is_first = audit.recovery.space == "input"
    where = "" if is_first else f" (layer {printable(audit.recovery.layer)})"
    return (
        f"batch of {batch_size:,}, {counted(neurons, 'neuron')} with "
        f"{counted(audit.features, 'input')} each{where}, {audit.loss.name}, "
        f"{precision(audit)}; decoded in {math.ceil(audit.seconds * 10) / 10:.1f} seconds"
    )


def _training(audit: Audit) -> list[tuple[str, str]]:
    """How the client trained locally, if it did, and what that means for the peeling bound."""
    training = local_training(audit)
    if training is None:
        return []
    several = audit.local_steps != 1
    grid = "; a neuron counts if it fired on the sample in any step" if several else ""
    return [("Local training", f"{training}; the server sees the difference of weights{grid}")]


def comparison(audit: Audit) -> tuple[list[tuple[str, int]], str | None]:
    """How many samples each step of the attack adds up to, and a note where that needs one.

    Returns:
        Names with numbers of samples, each including those before it, and last the peeling bound.
        The note explains samples beyond that bound.
    """
    counts, late = tally(audit), _certified_late(audit)
    bound = round(audit.score.peeling_bound * counts.batch_size)
    rows = [
        ("read directly, without peeling", counts.direct),
        ("with peeling", counts.direct + counts.peeled),
    ]
    if counts.rows:
        rows.append(("with the row cascade", counts.recovered))
    if counts.unproven:
        rows.append(("including samples read without proof", counts.read))
    rows.append(("peeling bound", bound))
    if counts.rows:
        start = "No neuron isolates a sample of this batch. " if bound == 0 else ""
        some = f"{counts.rows:,} of {counted(counts.batch_size, 'sample')} {was(counts.rows)}"
        return rows, (
            f"{start}{some} recovered by the row cascade, which does not need a neuron that "
            "isolates them."
        )
    if counts.recovered <= bound:
        return rows, late or None
    return rows, (
        f"{counts.recovered - bound:,} more than the peeling bound: samples with almost no "
        "gradient count in the activation grid, but they cannot hide others."
    )


def _certified_late(audit: Audit) -> str:
    """How many samples can be read directly, but were certified only after the first round."""
    rounds = rounds_of(audit).tolist()
    late = sum(way is Way.DIRECT and at > 1 for way, at in zip(ways(audit), rounds, strict=True))
    which = f"{late:,} of the samples that can be read directly {was(late)}"
    return f"{which} certified in a later round, when there was more evidence." if late else ""


def trust(audit: Audit) -> list[tuple[str, str]]:
    """How far the recovery can be trusted: the evidence, and a comparison with the real data."""
    score, recovery = audit.score, audit.recovery
    rows = []
    if len(recovery):
        rows.append(("Evidence", evidence(recovery)))
    if labels := _labels(score):
        rows.append(("Labels", labels))
    if several := copies(recovery):
        rows.append(("Copies", several))
    if score.max_abs_error is not None:
        low, high = float(audit.truth.min()), float(audit.truth.max())
        error = f"{scientific(score.max_abs_error)} in any entry"
        what = "data ranges" if audit.recovery.space == "input" else "features range"
        rows.append(("Largest error", f"{error}; the {what} from {low:.4g} to {high:.4g}"))
    rows.append(("False certificates", _fault(score.false_certificates)))
    if score.inexact_certificates:
        between = f"off by {RIGHT:g} to {FALSE:g} of the distance between samples"
        count = score.inexact_certificates
        rows.append(("Inexact certificates", f"{count}: {between}, neither right nor false"))
    if score.repeats:
        rows.append(("Repeated certificates", _fault(score.repeats)))
    if score.wrong_multiplicities:
        rows.append(("Copies miscounted", _fault(score.wrong_multiplicities)))
    if audit.wrong_memberships:
        rows.append(("Wrong memberships", _fault(audit.wrong_memberships)))
    rows.append(("Whole update", completeness(recovery)))
    return rows


def _labels(score: Score) -> str:
    """How many labels are right and how many are unknown; empty where there is nothing to say."""
    judged, right = int(score.labels_judged.sum()), int(score.labels_right.sum())
    known = [f"{right:,} of {judged:,} right"] if judged else []
    if score.unlabelled:
        known.append(f"unknown for {counted(score.unlabelled, 'sample')}")
    return ", ".join(known)


def _fault(number: int) -> str:
    return f"{number}: a fault in gradpeel, please report it" if number else "none"


def limits(audit: Audit, *, is_inverted: bool = False) -> str:
    """What the audit does not show.

    Args:
        audit: the simulated round.
        is_inverted: whether inputs were reconstructed from what it recovered.
    """
    is_input = audit.recovery.space == "input"
    return _limits(audit) if is_input else f"{_limits(audit)} {_beyond(audit, is_inverted)}"


def _beyond(audit: Audit, is_inverted: bool) -> str:
    what = (
        "What was recovered are feature vectors that enter layer "
        f"`{printable(audit.recovery.layer)}`, not inputs"
    )
    if is_inverted:
        return f"{what}. The inputs that were reconstructed from them are not certified."
    return (
        f"{what}. To find out how much of an input they reveal, reconstruct it (`gradpeel.invert`)."
    )


def _limits(audit: Audit) -> str:
    if audit.score.recovered == audit.score.batch_size:
        return (
            "This is one batch and one network. Other batches and networks disclose more or less, "
            "so none of these numbers carries over to them."
        )
    return (
        "Not recovered is not safe. This is one update and one attack: another batch, another "
        "round, another design of the first layer or another attack may recover the rest."
    )
