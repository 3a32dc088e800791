"""How exact is exact: every tolerance of the decoder, in one place.

None of them is absolute. The decoder keeps, for every neuron and every sample, an estimate of its
error that starts at the rounding of the update's dtype and grows with each subtraction; what
follows says how that estimate is used.
"""

from __future__ import annotations

__all__ = ["CHANCE", "CLEAR", "EXACT", "LOOSEST", "ROUNDING", "SAME", "SLACK"]

ROUNDING = 8.0
"""Roundings behind one entry of an update, in units of its dtype's resolution."""

SLACK = 32.0
"""How many times its tracked error a quantity may be off before it counts as really different."""

CLEAR = 1e3
"""How far above its error a neuron's residual must stand before its candidate is looked at."""

EXACT = 5e-4
"""Largest relative error of a sample that may still be certified."""

LOOSEST = 1e-3
"""Largest relative mismatch of any equation, however large the tracked error."""

CHANCE = 1e-9
"""Largest accepted probability that one mixture is certified by luck."""

SAME = 1e-6
"""Two samples closer than this, relative to the typical size of an entry, are one."""
