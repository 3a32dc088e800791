"""What the first screen of a report says, in words."""

from __future__ import annotations

from gradpeel.audit import Audit
from gradpeel.reporting.members import membership
from gradpeel.reporting.page.payload import Count, Fact, Story
from gradpeel.reporting.reasons import missing
from gradpeel.reporting.sentences import (
    came_back,
    comparison,
    limits,
    setup,
    severity,
    trust,
    verdict,
)
from gradpeel.reporting.tally import tally
from gradpeel.reporting.words import counted, printable, scientific

__all__ = ["story_of"]

MOST = 400
"""Letters of a sentence that comes from somebody's design or model."""


def story_of(audit: Audit, *, is_inverted: bool = False) -> Story:
    """Describe an audit in words.

    Args:
        audit: the simulated round.
        is_inverted: whether inputs were reconstructed from what it recovered.
    """
    counts, note = comparison(audit)
    return Story(
        verdict=verdict(audit),
        severity=Fact(*severity(audit)),
        membership=membership(audit),
        recovered=came_back(audit, is_inverted=is_inverted) or "",
        who=tuple(_who(audit)),
        confidence=tuple(_confidence(audit)),
        limits=limits(audit, is_inverted=is_inverted),
        advice=tuple(_advice(audit)),
        warnings=tuple(printable(sentence, MOST) for sentence in audit.recovery.warnings),
        setup=_facts(setup(audit, is_inverted=is_inverted)),
        trust=_facts(trust(audit)),
        missing=_facts(missing(audit)),
        comparison=tuple(Count(name, number) for name, number in counts),
        note=note or "",
    )


def _facts(rows: list[tuple[str, str]]) -> tuple[Fact, ...]:
    return tuple(Fact(name, text) for name, text in rows)


def _who(audit: Audit) -> list[Fact]:
    who = printable(audit.design.adversary, MOST)
    tampering = (
        f"The client receives a model in which {_layer(audit)} was shaped for this attack. The "
        "server follows the rest of the protocol."
        if audit.design.active
        else "None. The client receives an honest model, so it cannot notice anything."
    )
    auxiliary = getattr(audit.design, "auxiliary", None)
    own = (
        "None needed."
        if auxiliary is None
        else f"{counted(len(auxiliary), 'sample')} of the same kind, none of them the client's."
    )
    return [
        Fact("Attacker", f"{who[:1].upper()}{who[1:]}."),
        Fact("Tampering", tampering),
        Fact("Attacker's own data", own),
        Fact("Attacker's knowledge", _knows(audit)),
    ]


def _layer(audit: Audit) -> str:
    """The attacked layer, in a sentence."""
    is_first = audit.recovery.space == "input"
    return "the first layer" if is_first else f"layer `{printable(audit.recovery.layer)}`"


def _knows(audit: Audit) -> str:
    is_stated = audit.update.batch_size is not None
    size = " and the batch size" if is_stated else ""
    if audit.without_tail is not None:
        known = "The first layers" if audit.recovery.space == "input" else f"Only {_layer(audit)}"
        if bool((audit.recovery.labels >= 0).any()):
            return f"{known}{size}. The later layers were used for labels only."
        return f"{known}{size}. Neither the loss nor the later layers were used."
    loss = ", the loss" if is_stated else " and the loss"
    return f"The model it sent out{loss}{size}, which a server knows anyway."


def _confidence(audit: Audit) -> list[Fact]:
    recovery, score = audit.recovery, audit.score
    tested = f"{counted(recovery.candidates_tested, 'candidate')} tested"
    facts = [Fact("Search", f"{tested}, {len(recovery):,} of them certified.")]
    if unproven := tally(audit).unproven:
        match = "matches" if unproven == 1 else "match"
        carry = "carries" if unproven == 1 else "carry"
        facts.append(
            Fact(
                "Read without proof",
                f"{counted(unproven, recovery.noun)} among the candidates {match} the real data "
                f"but {carry} no proof; only an audit can detect this.",
            )
        )
    if not len(recovery):
        nothing = "Nothing was proven, which does not prove that nothing can be recovered."
        return [*facts, Fact("Meaning", nothing)]
    fewest = counted(int(recovery.equations.min()), "equation")
    digits = f"{float(recovery.scores.min()):.0f}"
    proof = (
        f"Every recovered {recovery.noun} carries a certificate that uses the update alone: it "
        f"satisfies at least {fewest}, with an evidence score of at least {digits} decimal digits."
    )
    facts = [Fact("Proof", proof), *facts, Fact("Checked against the real data", _truth(audit))]
    if score.false_certificates or score.repeats:
        facts.append(Fact("Fault", "Some certificates are wrong: please report this."))
    return facts


def _truth(audit: Audit) -> str:
    score, certified = audit.score, len(audit.recovery)
    checks = [f"{score.false_certificates:,} of {counted(certified, 'certificate')} false"]
    judged = int(score.labels_judged.sum())
    if judged:
        checks.append(f"{int(score.labels_right.sum()):,} of {counted(judged, 'label')} right")
    if score.max_abs_error is not None:
        checks.append(f"largest error of any entry {scientific(score.max_abs_error)}")
    return f"{'; '.join(checks)}."


def _advice(audit: Audit) -> list[str]:
    """What to do next; nothing here is promised to protect, so each step ends in another audit."""
    advice = []
    if audit.score.read:
        advice.append(
            "Protect such an update like the data itself: whoever sees it can read these "
            f"{audit.recovery.noun}s."
        )
        advice.append(
            "Do not let anyone see the update of a single client. Aggregate securely over many "
            "clients, and audit the aggregate."
            if audit.update.clients == 1
            else f"Do not rely on a sum over {audit.update.clients:,} clients. Aggregate over more "
            "of them, and audit the sum again."
        )
        advice.append(
            "Let clients check before they send: `gradpeel.exposure(model, x)` lists the samples "
            "that peeling would recover, in one forward pass. The row cascade may recover others."
        )
    else:
        advice.append(
            "Do not read this as protection. Repeat the audit with a stronger attacker first."
        )
    if not audit.design.active:
        is_input = audit.recovery.space == "input"
        how = "gradpeel audit --design soliton-data" if is_input else "SolitonData(auxiliary)"
        advice.append(f"Test a server that shapes {_layer(audit)}: `{how}`.")
    if audit.client.defences:
        advice.append(
            "Repeat the audit with other defences and settings; one result says little about the "
            "others."
        )
    elif not audit.client.noise:
        advice.append(
            "Measure a defence before you rely on it: noise or the guard (`--defence`), other "
            "batch sizes; `--what-stops` tries several."
        )
    else:
        advice.append(
            "Vary the noise: how much is needed depends on the model, the batch and the data."
        )
    return advice
