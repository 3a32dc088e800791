"""The attacks, spelled out: one name for each design, on every page.

Example:
    >>> spelled("soliton-data", "mirrored"), spelled("passive")
    ('Soliton-Data, mirrored', 'passive server')
"""

from __future__ import annotations

__all__ = ["spelled"]

_NAMES = {
    "passive": "passive server",
    "trap-weights": "trap weights",
    "soliton-free": "Soliton-Free",
    "soliton-data": "Soliton-Data",
}


def spelled(design: str, weights: str | None = None) -> str:
    """A design, and how its weights are drawn."""
    name = _NAMES.get(design, design)
    return name if weights is None else f"{name}, {weights}"
