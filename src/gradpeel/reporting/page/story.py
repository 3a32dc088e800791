"""The words of the page: for a reader who has ten seconds, and for one who has an hour."""

from __future__ import annotations

from gradpeel.audit import Audit
from gradpeel.reporting.page.payload import Count, Fact, Story
from gradpeel.reporting.telling import comparison, limits, missing, scene, trust, verdict
from gradpeel.reporting.words import counted, printable, scientific

__all__ = ["story_of"]

MOST = 400
"""Letters of a sentence that comes from somebody's design or model."""


def story_of(audit: Audit) -> Story:
    """Tell an audit in words."""
    counts, note = comparison(audit)
    return Story(
        verdict=verdict(audit),
        who=tuple(_who(audit)),
        sure=tuple(_sure(audit)),
        limits=limits(audit),
        advice=tuple(_advice(audit)),
        warnings=tuple(printable(sentence, MOST) for sentence in audit.recovery.warnings),
        scene=_facts(scene(audit)),
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
        "The first layer that the client receives was shaped for this attack; the rest of the "
        "protocol is kept."
        if audit.design.active
        else "None. The client receives an honest model and has nothing to notice."
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
        Fact("Data of its own", own),
        Fact("Has to know", _knows(audit)),
    ]


def _knows(audit: Audit) -> str:
    size = "" if audit.update.batch_size is None else " and the batch size"
    if audit.without_tail is not None:
        return f"The first layers{size}; neither the loss nor what comes behind was used."
    return f"The model it sent out, the loss{size}, as a server does."


def _sure(audit: Audit) -> list[Fact]:
    recovery, score = audit.recovery, audit.score
    facts = []
    if len(recovery):
        fewest = counted(int(recovery.equations.min()), "equation")
        facts.append(
            Fact(
                "Proof",
                "Every rebuilt sample carries a certificate, found in the gradient alone: it meets "
                f"{fewest} or more.",
            )
        )
        digits = f"{float(recovery.scores.min()):.0f}"
        facts.append(
            Fact("Weight of evidence", f"At least {digits} decimal digits, all equations together.")
        )
    tested = f"{counted(recovery.candidates_tested, 'candidate')} tested"
    facts.append(Fact("Candidates", f"{tested}, {len(recovery)} of them certified."))
    if not len(recovery):
        facts.append(
            Fact(
                "What that means", "Nothing was proven, which does not prove that nothing is there."
            )
        )
    if len(recovery):
        facts.append(Fact("Held against the truth", _truth(audit)))
    if score.false_certificates or score.repeats:
        facts.append(Fact("Fault", "Some certificates do not hold: please report it."))
    return facts


def _truth(audit: Audit) -> str:
    score, certified = audit.score, len(audit.recovery)
    told = [f"{score.false_certificates} of {counted(certified, 'certificate')} false"]
    judged = int(score.labels_judged.sum())
    if judged:
        told.append(f"{int(score.labels_right.sum())} of {judged} labels right")
    if score.max_abs_error is not None:
        told.append(f"no entry off by more than {scientific(score.max_abs_error)}")
    return "; ".join(told) + "."


def _advice(audit: Audit) -> list[str]:
    """What to do next; nothing here is promised to be safe, so each step ends in another audit."""
    advice = []
    if audit.score.read:
        advice.append(
            "Treat such a gradient like the data itself: whoever sees it holds these samples."
        )
        advice.append(
            "Let nobody see a single client's gradient (secure aggregation over many clients), and "
            "audit what is left."
        )
        advice.append(
            "Let clients check before they send: gradpeel.exposure(model, x) names the samples "
            "that peeling would read, in one forward pass. The row cascade may read the others."
        )
    else:
        advice.append("Do not read this as protection: ask a stronger attacker the same question.")
    if not audit.design.active:
        advice.append(
            "Try a server that shapes the first layer: gradpeel audit --design soliton-data."
        )
    if not audit.noise:
        advice.append(
            "Measure a defence before you rely on it: noise (--noise), other batch sizes, other "
            "widths."
        )
    else:
        advice.append("Vary the noise: how much is needed differs with model, batch and data.")
    return advice
