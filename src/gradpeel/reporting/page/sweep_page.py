"""The page of a sweep: what it found, by batch size and by what else varies, and what failed."""

from __future__ import annotations

from gradpeel._version import __version__
from gradpeel.reporting.page.shell import fill
from gradpeel.reporting.page.sweep_charts import curves, heat_maps, line_panels
from gradpeel.reporting.page.sweep_words import (
    data_title,
    dataset_name,
    lead,
    method_name,
    setting_name,
    whole_batches,
)
from gradpeel.reporting.words import counted, printable
from gradpeel.sweeps import Results
from gradpeel.sweeps.store import Finished
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
    varied, by_size, maps = curves(groups), line_panels(groups), heat_maps(groups)
    # A chart with one batch size says nothing beside charts over what the plan did vary.
    if varied and all(len(panel.ticks) == 1 for panel in by_size):
        by_size, maps = [], [one for one in maps if len(one.rows) > 1]
    return fill(
        "sweep.html.j2",
        styles=("sweep.css",),
        verdict=lead(groups),
        facts=_facts(results),
        whole=_whole(groups),
        any_whole=any(size for _, size in whole_batches(groups)),
        panels=by_size,
        curves=varied,
        links=[(one.place, f"Recovery by {one.name}") for one in varied],
        maps=maps,
        failures=[printable(_failure(one), 300) for one in results.failures[:MOST_FAILURES]],
        more=max(0, len(results.failures) - MOST_FAILURES),
        made_with=__version__,
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    found = [row.measurement for row in results.rows if row.measurement is not None]
    recovered = sum(one.recovered for one in found)
    false = counted(sum(one.false_certificates for one in found), "false certificate")
    wrong = counted(sum(one.wrong_labels for one in found), "wrong label")
    is_trained = any(row.cell.lr is not None for row in results.rows)
    sent = "training round" if is_trained else "gradient"
    audits = f"{counted(len(found), 'audit')} of one {sent} each"
    limits = "Not recovered is not safe: another attack, round or batch may recover the rest."
    if not any(row.cell.effort for row in results.rows):
        limits += " This sweep measured peeling alone; the row cascade was not run."
    facts = [
        (
            "Confidence",
            f"{audits}, {counted(recovered, 'sample')} recovered: {false}, {wrong}.",
        ),
        ("Limits of this sweep", limits),
    ]
    if results.failures:
        failed = counted(len(results.failures), "audit")
        facts.append(("Failed", f"{failed}; see the list at the end of this page."))
    facts += [(f"About {data_title(name)}", f"{note}.") for name, note in results.notes.items()]
    return [(printable(name, 80), printable(text, 600)) for name, text in facts]


def _failure(one: Finished) -> str:
    cell = one.cell
    batch = f"batch of {cell.batch_size:,}"
    what = (dataset_name(cell), method_name(cell), batch, setting_name(cell), f"seed {cell.seed}")
    return f"{', '.join(what)}: {one.error}"


def _whole(groups: list[Group]) -> list[tuple[str, str, str, str]]:
    """Data set, method, setting, and the largest batch that was always recovered whole."""
    return [
        (dataset_name(cell), method_name(cell), setting_name(cell), f"{size:,}" if size else "none")
        for cell, size in whole_batches(groups)
    ]
