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
from gradpeel.report.bars import round_bars
from gradpeel.report.layout import all_of, completeness, facts, headed, panel, was
from gradpeel.report.words import counted, listing, percent, printable, scientific
from gradpeel.scoring import Outcome

__all__ = ["summary"]

_WEIGHTS = {
    "keep": "the model's own weights",
    "gaussian": "Gaussian weights",
    "torch": "PyTorch's default weights",
    "independent": "independent weights",
    "mirrored": "mirrored weights",
}


def summary(audit: Audit, *, data: str) -> RenderableType:
    """Tell what an audit found: verdict, adversary, rounds, comparison, trust, and what is open.

    Args:
        audit: the simulated round.
        data: what the data is called.
    """
    parts = [
        _verdict(audit),
        facts(
            [
                ("Who can do this", _adversary(audit)),
                ("Design", _design(audit)),
                ("Setting", _setting(audit)),
            ]
        ),
    ]
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
    recovered, batch_size = audit.score.recovered, audit.score.batch_size
    if not recovered:
        verdict = f"No sample of {batch_size} was rebuilt from this gradient."
        return Text(verdict, style="bold yellow")
    some = f"{recovered} of {counted(batch_size, 'sample')}"
    subject = all_of(batch_size) if recovered == batch_size else some
    labels = ", with labels," if audit.score.label_accuracy == 1 else ""
    verdict = f"{subject} {was(recovered)} rebuilt exactly{labels} from one gradient."
    return Text(verdict, style="bold red")


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
        f"{counted(audit.features, 'input')}, {_dtype(audit)}; "
        f"decoded within {math.ceil(audit.seconds * 10) / 10:.1f} seconds"
    )


def _dtype(audit: Audit) -> str:
    return str(audit.update.dtype).removeprefix("torch.")


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
    score = audit.score
    rows = []
    if score.max_abs_error is not None:
        matched = int((score.matches >= 0).sum())
        low, high = float(audit.x.min()), float(audit.x.max())
        error = f"{scientific(score.max_abs_error)} in any entry"
        rows = [
            ("Labels right", f"{int(score.labels_right.sum())} of {matched}"),
            ("Worst error", f"{error}; the data runs from {low:.4g} to {high:.4g}"),
        ]
    rows.append(("False certificates", _fault(score.false_certificates)))
    if score.repeats:
        rows.append(("Repeats", _fault(score.repeats)))
    rows.append(("Whole update", completeness(audit.recovery)))
    return rows


def _fault(number: int) -> str:
    return f"{number}: a fault of gradpeel, please report it" if number else "none"


def _missing(audit: Audit) -> list[tuple[str, str]]:
    """What became of the others, by name where peeling could reach them."""
    faint, coarse, inexact, hidden, missed, unreached = (
        [i for i, outcome in enumerate(audit.score.outcomes) if outcome is wanted]
        for wanted in (
            Outcome.FAINT,
            Outcome.COARSE,
            Outcome.INEXACT,
            Outcome.HIDDEN,
            Outcome.MISSED,
            Outcome.UNREACHED,
        )
    )
    rows = []
    if faint:
        share = scientific(float(audit.signals[faint].max()))
        why = f"at most {share} of what they are summed up with, too little for {_dtype(audit)}"
        rows.append((f"{len(faint)} faint", f"no. {listing(faint)}: reachable, but {why}"))
    if coarse:
        why = f"reachable, but {_dtype(audit)} has fewer digits than a certificate needs"
        rows.append((f"{len(coarse)} not provable", why))
    if inexact:
        why = "reachable, but what the cascade leaves of them is too inexact to prove"
        rows.append((f"{len(inexact)} inexact", f"no. {listing(inexact)}: {why}"))
    if hidden:
        why = "reachable only behind one that was not recovered"
        rows.append((f"{len(hidden)} hidden", f"no. {listing(hidden)}: {why}"))
    if missed:
        why = "reachable, but the decoder stopped short of them"
        rows.append((f"{len(missed)} missed", f"no. {listing(missed)}: {why}"))
    if unreached:
        rows.append((f"{len(unreached)} not reached", "no neuron comes to isolate them"))
    return rows


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
