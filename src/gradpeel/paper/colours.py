"""Colours of heat maps that everybody can tell apart, light enough for dark text on them."""

from __future__ import annotations

__all__ = ["diverging", "sequential"]

WHITE, BLUE, ORANGE, DEEP = (255, 255, 255), (86, 160, 211), (230, 140, 60), (70, 150, 205)


def diverging(share: float) -> str:
    """From orange at -1 over white at 0 to blue at 1; beyond that it stays.

    Example:
        >>> diverging(-2.0), diverging(0.0), diverging(1.0)
        ('#e68c3c', '#ffffff', '#56a0d3')
    """
    return _between(WHITE, ORANGE if share < 0 else BLUE, min(abs(share), 1.0))


def sequential(share: float) -> str:
    """From white at 0 to blue at 1."""
    return _between(WHITE, DEEP, min(max(share, 0.0), 1.0))


def _between(start: tuple[int, int, int], end: tuple[int, int, int], share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
