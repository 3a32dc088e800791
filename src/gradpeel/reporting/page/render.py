"""The page of an audit, from its payload and nothing else."""

from __future__ import annotations

from gradpeel.reporting.page.charts import bars, degree_bars, probability_bars, scatter
from gradpeel.reporting.page.payload import Payload
from gradpeel.reporting.page.shell import fill

__all__ = ["render"]

ENDS = 6
"""Samples shown at either end of the scale of atypicality, and on the first screen."""


def render(payload: Payload) -> str:
    """Make the page of a payload; see `gradpeel.reporting.page.shell` for what is guaranteed."""
    read_by_scripts = payload.as_dict()
    del read_by_scripts["story"], read_by_scripts["risk"]
    by_degree = degree_bars(payload.risk.degrees, payload.risk.target)
    by_share = probability_bars(payload.risk.degrees)
    by_type = sorted(payload.samples, key=lambda sample: (sample.atypicality, sample.index))
    fallen = sorted((s for s in payload.samples if s.round), key=lambda sample: sample.risk)
    return fill(
        "report.html.j2",
        styles=("report.css",),
        scripts=("cascade.js", "graph.js", "samples.js"),
        data=read_by_scripts,
        page=payload,
        story=payload.story,
        scatter=scatter(payload.risk),
        by_degree=by_degree,
        degree_chart=bars(by_degree, labels=6),
        by_share=by_share,
        share_chart=bars(by_share, labels=6),
        typical=by_type[:ENDS],
        atypical=by_type[: -ENDS - 1 : -1],
        most_exposed=fallen[:ENDS],
    )
