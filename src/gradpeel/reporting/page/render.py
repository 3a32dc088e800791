"""The page of an audit, from its payload and nothing else."""

from __future__ import annotations

from gradpeel.reporting.page.charts import (
    bars,
    degree_bars,
    probability_bars,
    residual_curve,
    scatter,
)
from gradpeel.reporting.page.first_screen import bar_label, bar_parts, evidence_of
from gradpeel.reporting.page.payload import Payload
from gradpeel.reporting.page.shell import fill

__all__ = ["render"]

ENDS = 6
"""Samples shown at either end of the scale of atypicality."""
WORDS = (
    "story",
    "risk",
    "setting",
    "hashes",
    "variations",
    "remedies",
    "reconstructions",
    "leaked",
)
"""What the scripts of the page do not need."""


def render(payload: Payload) -> str:
    """Make the page of a payload; see `gradpeel.reporting.page.shell` for what is guaranteed."""
    read_by_scripts = {
        name: value for name, value in payload.as_dict().items() if name not in WORDS
    }
    by_degree = degree_bars(payload.risk.degrees, payload.risk.target)
    by_share = probability_bars(payload.risk.degrees)
    by_type = sorted(payload.samples, key=lambda sample: (sample.atypicality, sample.index))
    return fill(
        "report.html.j2",
        styles=("report.css",),
        scripts=("cascade.js", "mosaic.js", "chain.js", "samples.js", "downloads.js"),
        data=read_by_scripts,
        made_with=payload.made_with,
        page=payload,
        story=payload.story,
        bar=bar_parts(payload.tally),
        bar_label=bar_label(
            payload.tally, "sample" if payload.space == "input" else "feature vector"
        ),
        evidence=evidence_of(payload),
        variations=[
            (one.name, one.read, one.batch_size)
            for one in payload.variations
            if one.read is not None
        ],
        unfinished=[one.name for one in payload.variations if one.read is None],
        scatter=scatter(payload.risk),
        residual=residual_curve([step.residual for step in payload.cascade.steps]),
        by_degree=by_degree,
        degree_chart=bars(by_degree, labels=6),
        by_share=by_share,
        share_chart=bars(by_share, labels=6),
        typical=by_type[:ENDS],
        atypical=by_type[: -ENDS - 1 : -1],
    )
