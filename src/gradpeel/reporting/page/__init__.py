r"""The report page: what an audit found, on one page that can be mailed.

    audit -> gather -> payload -> render -> one HTML file
                          \-> report.json -> read -> payload

Example:
    >>> import numpy as np
    >>> import gradpeel as gp
    >>> from gradpeel.datasets import draw_batch, load
    >>> from gradpeel.networks import mlp
    >>> data = load("digits")
    >>> batch = draw_batch(data, 4)
    >>> model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    >>> page = gp.report(gp.audit(model, batch.x, batch.y), data)
    >>> "All 4 samples were recovered from one gradient" in page.html
    True
"""

from gradpeel.reporting.page.document import PAGE, Document
from gradpeel.reporting.page.payload import Payload
from gradpeel.reporting.page.report import VALUES, Report, report
from gradpeel.reporting.page.spread_page import SpreadReport

__all__ = ["PAGE", "VALUES", "Document", "Payload", "Report", "SpreadReport", "report"]
