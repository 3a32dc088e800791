"""The attacks, spelled out: one name for each design, on every page.

Example:
    >>> spelled("soliton-data", "mirrored"), spelled("passive", rows=True)
    ('Soliton-Data, mirrored', 'passive server with the row cascade')
"""

from __future__ import annotations

__all__ = ["spelled"]

_NAMES = {
    "passive": "passive server",
    "trap-weights": "trap weights",
    "soliton-free": "Soliton-Free",
    "soliton-data": "Soliton-Data",
    "tuned": "Tuned",
    "tuned-free": "Tuned without data",
    "qbi": "QBI",
    "pairs": "PAIRS",
}


def spelled(design: str, weights: str | None = None, *, rows: bool = False) -> str:
    """A design, how its weights are drawn, and whether the row cascade follows the peeling."""
    name = _NAMES.get(design, design)
    drawn = name if weights is None else f"{name}, {weights}"
    return f"{drawn} with the row cascade" if rows else drawn
