"""The paper's evidence: its table and its figures, as published and from our own runs."""

from gradpeel.paper.published import published_rates

__all__ = ["published_rates"]
