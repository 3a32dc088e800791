"""How much an update may give away, and what a check says to that.

Example:
    >>> Budget(max_readable=5)
    Traceback (most recent call last):
    gradpeel.errors.InputError: max_readable=5: expected a share from 0 to 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from gradpeel.checks import is_number
from gradpeel.errors import InputError

__all__ = ["Budget", "Verdict"]


class Verdict(IntEnum):
    """Whether a budget holds; the numbers are the exit codes of `gradpeel check`."""

    HOLDS = 0
    """The check found no more than the budget allows."""
    LEAKS = 1
    """The check found more."""
    UNKNOWN = 2
    """The check did not look far enough to say."""


@dataclass(frozen=True)
class Budget:
    """The largest shares of an update's records that it may give away.

    Attributes:
        max_readable: of records that can be read, from 0 to 1 (data reconstruction).
        max_members: of records whose participation can be shown, from 0 to 1 (membership
            inference); None to leave that out.

    Raises:
        InputError: a share is not one.
    """

    max_readable: float = 0.0
    max_members: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_readable", "max_members"):
            share = getattr(self, name)
            if name == "max_members" and share is None:
                continue
            if not is_number(share) or not 0 <= share <= 1:
                raise InputError(f"{name}={share!r}: expected a share from 0 to 1")

    def readable_of(self, records: int) -> int:
        """How many of a number of records may be readable.

        Example:
            >>> Budget(max_readable=0.05).readable_of(64)
            3
        """
        return _allowed(self.max_readable, records)

    def members_of(self, records: int) -> int | None:
        """How many of a number of records may be shown to have taken part; None for any."""
        return None if self.max_members is None else _allowed(self.max_members, records)


def _allowed(share: float, records: int) -> int:
    # 0.29 * 100 is a little less than 29.
    return math.floor(share * records * (1 + 1e-12))
