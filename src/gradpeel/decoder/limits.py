"""How exact is exact: the tolerances that parts of the decoder share.

None of them is absolute. The decoder keeps, for every neuron and every sample, an estimate of its
error that starts at the rounding of the update's dtype and grows with each subtraction; what
follows says how that estimate is used.
"""

from __future__ import annotations

__all__ = [
    "CHANCE",
    "CLEAR",
    "CONFIRMS",
    "COPIES",
    "COPY",
    "EXACT",
    "HOLDS",
    "KINK",
    "LOOSEST",
    "MERGE",
    "MOST_TRACE",
    "NOTHING",
    "ROUNDING",
    "SAME",
    "SLACK",
    "SPECULATIVE",
    "STANDS_OUT",
    "STATED",
    "WORN",
    "WORN_MEASURED",
]

ROUNDING = 8.0
"""Roundings behind one entry of an update, in units of its dtype's resolution."""

SLACK = 32.0
"""How many times its tracked error a quantity may be off before it counts as really different."""

NOTHING = 8.0
"""How many times its error a residual may be away from zero, or a sample from another reading of
it, and the difference still be nothing."""

CLEAR = 50.0
"""How far above its error a neuron's residual must stand before its candidate is looked at."""

EXACT = 1e-2
"""Largest relative error of a sample that may still be certified."""

LOOSEST = 2e-2
"""Largest relative mismatch of any equation, however large the tracked error."""

CHANCE = 1e-9
"""Largest accepted probability that one mixture is certified by luck."""

SAME = 1e-5
"""Two samples closer than this, relative to the typical size of an entry, are one."""

KINK = 3.0
"""How many times its error a pre-activation may be below or above zero and still be in doubt."""

WORN = 1e-6
"""Error of a sample from which on the cascade does not go on without refining."""

MERGE = 4.0
"""How many times their errors two candidates may be apart and still be one sample."""

SPECULATIVE = 1e-2
"""Largest chance of a candidate that may be subtracted on trial, to be confirmed later."""

CONFIRMS = 1e-3
"""What one surplus neuron that a sample helps to explain takes off its chance."""

STANDS_OUT = 30.0
"""How far above the errors at a neuron a sample's part in it must be to speak for the sample."""

WORN_MEASURED = 1e-10
"""The same where sensitivities are not computed but measured, and lose digits faster."""

MOST_TRACE = 3e-3
"""Most of another sample that may be left in one that the structure certifies."""

COPIES = 1e-2
"""Largest radius of a group, relative to the typical size of a sample, that counts as copies."""

COPY = 1e-3
"""How near to a whole number of copies a weight must be to be that of copies."""

HOLDS = 3.0
"""A fit may move a sample by this many times its estimated error."""

STATED = 5.0
"""How many times its estimate a sample's error is stated to be, so that it holds."""
