"""The page of a sweep: recovery against batch size and noise, heat maps, and what failed."""

from __future__ import annotations

from gradpeel._version import __version__
from gradpeel.reporting.page.shell import fill
from gradpeel.reporting.page.sweep_charts import heat_maps, line_panels, noise_panels
from gradpeel.reporting.words import counted, percent, printable
from gradpeel.sweeps import Results
from gradpeel.sweeps.summary import Group, over_seeds

__all__ = ["sweep_html"]

MOST_FAILURES = 20


def sweep_html(results: Results) -> str:
    """Make the page of a sweep: one HTML file that needs nothing beside it.

    Example:
        >>> "No audit was measured." in sweep_html(Results([], [], {}, []))
        True
    """
    groups = over_seeds(results.rows)
    return fill(
        "sweep.html.j2",
        styles=("sweep.css",),
        verdict=_verdict(results, groups),
        facts=_facts(results, groups),
        panels=line_panels(groups),
        noises=noise_panels(groups),
        maps=heat_maps(groups),
        failures=[printable(str(one), 300) for one in results.failures[:MOST_FAILURES]],
        more=max(0, len(results.failures) - MOST_FAILURES),
        made_with=__version__,
    )


def _verdict(results: Results, groups: list[Group]) -> str:
    if not groups:
        return "No audit was measured."
    found = [row.measurement for row in results.rows if row.measurement is not None]
    total = sum(row.cell.batch_size for row in results.rows)
    rebuilt = sum(one.recovered for one in found)
    share = percent(rebuilt / total)
    return (
        f"{rebuilt} of {counted(total, 'sample')} ({share}) were rebuilt, over "
        f"{counted(len(found), 'audit')} of one gradient each."
    )


def _facts(results: Results, groups: list[Group]) -> list[tuple[str, str]]:
    found = [row.measurement for row in results.rows if row.measurement is not None]
    false = counted(sum(one.false_certificates for one in found), "false certificate")
    wrong = counted(sum(one.wrong_labels for one in found), "wrong label")
    limits = "Not recovered is not safe: another attack, round or batch may reach the rest."
    facts = [("How sure it is", f"{false}, {wrong}."), ("What was not shown", limits)]
    if exposed := _rebuilt_whole(groups):
        facts.append(("Largest batch that was rebuilt to the last sample", exposed))
    if results.failures:
        failed = counted(len(results.failures), "audit")
        facts.append(("Failed", f"{failed}; see the end of this page."))
    facts += [(f"About {name}", f"{note}.") for name, note in results.notes.items()]
    return [(printable(name, 80), printable(text, 600)) for name, text in facts]


def _rebuilt_whole(groups: list[Group]) -> str:
    """By data set, the largest batch size at which every audit of some method got all of it."""
    best: dict[str, Group] = {}
    for group in groups:
        held = best.get(group.cell.dataset)
        is_larger = held is None or group.cell.batch_size > held.cell.batch_size
        if group.ours.mean == 1 and is_larger:
            best[group.cell.dataset] = group
    told = (f"{name} {one.cell.batch_size} ({one.cell.method})" for name, one in best.items())
    return ", ".join(told)
