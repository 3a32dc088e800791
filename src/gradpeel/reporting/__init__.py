"""What people look at: a summary in the terminal, and figures.

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
    │  All 4 samples were recovered from one gradient, with their labels, ...
"""

from typing import TYPE_CHECKING

from gradpeel._late import load_late

if TYPE_CHECKING:
    from gradpeel.reporting.audit_summary import summary
    from gradpeel.reporting.board import activation_grid_rounds
    from gradpeel.reporting.figures import save_figures
    from gradpeel.reporting.photo import rebuilt_photo
    from gradpeel.reporting.samples import originals_and_recovered
    from gradpeel.reporting.spread_summary import spread_summary
    from gradpeel.reporting.stopping_summary import stopping_summary
    from gradpeel.reporting.update_summary import peel_summary
else:
    load_late(
        __name__,
        {
            "gradpeel.reporting.audit_summary": ("summary",),
            "gradpeel.reporting.board": ("activation_grid_rounds",),
            "gradpeel.reporting.figures": ("save_figures",),
            "gradpeel.reporting.photo": ("rebuilt_photo",),
            "gradpeel.reporting.samples": ("originals_and_recovered",),
            "gradpeel.reporting.spread_summary": ("spread_summary",),
            "gradpeel.reporting.stopping_summary": ("stopping_summary",),
            "gradpeel.reporting.update_summary": ("peel_summary",),
        },
    )

__all__ = [
    "activation_grid_rounds",
    "originals_and_recovered",
    "peel_summary",
    "rebuilt_photo",
    "save_figures",
    "spread_summary",
    "stopping_summary",
    "summary",
]
