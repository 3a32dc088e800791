"""Numbers and names as a person reads them.

Example:
    >>> counted(24865, "sample"), percent(22 / 128), listing([3, 17, 40])
    ('24,865 samples', '17.2 %', '3, 17 and 40')
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "counted",
    "duration",
    "listing",
    "measured",
    "percent",
    "printable",
    "scientific",
    "short",
]


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float) -> str:
    """A share in [0, 1], rounded to a tenth of a percent; "100 %" means all and "0 %" means none.

    Halves are rounded up, as people do it.

    Example:
        >>> percent(1.0), percent(1 - 1e-9), percent(22 / 128), percent(1e-5), percent(0.0)
        ('100 %', '> 99.9 %', '17.2 %', '< 0.1 %', '0 %')
        >>> percent(0.6375)
        '63.8 %'
    """
    if share in {0, 1}:
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001:
        return "< 0.1 %"
    # 0.6375 is stored as a little less than it is written.
    return "> 99.9 %" if share > 0.999 else f"{math.floor(1000 * share + 0.5 + 1e-9) / 10:.1f} %"


def scientific(value: float) -> str:
    """Two digits and the exponent; zero is "0".

    Example:
        >>> scientific(2.1660451e-13), scientific(0.0)
        ('2.2e-13', '0')
    """
    return f"{value:.1e}" if value else "0"


def measured(value: float) -> str:
    """A value in its own units: five digits, or a whole number where it is large.

    Example:
        >>> [measured(value) for value in (0.086, 24865.3, 123456.0, -1.5e-7, 0.0)]
        ['0.086', '24,865', '123,456', '-1.5e-07', '0']
    """
    size = abs(value)
    if 0 < size < 1e-4 or size >= 1e15:
        return scientific(value)
    return f"{value:,.0f}" if size >= 1e5 else f"{value:,.5g}"


def short(value: float) -> str:
    """A setting as people write it, without a zero before the exponent.

    Example:
        >>> short(1e-06), short(0.001), short(64)
        ('1e-6', '0.001', '64')
    """
    return f"{value:g}".replace("e-0", "e-")


def listing(numbers: Sequence[int], most: int = 8) -> str:
    """Numbers in a sentence; numbers beyond the first `most` are only counted.

    Example:
        >>> listing([7]), listing(range(20), most=3)
        ('7', '0, 1, 2 and 17 more')
    """
    shown = [str(number) for number in numbers[:most]]
    if len(numbers) > most:
        shown.append(f"{len(numbers) - most} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def printable(name: str, most: int = 48) -> str:
    r"""A name from a file, fit for a terminal or a figure: one line, no escape sequences, not long.

    The end is kept, because in a path it says the most.

    Example:
        >>> printable("[red]\x1b[2J"), printable("/a/long/way/to/mine.npz", most=12)
        ('[red]\\x1b[2J', '...mine.npz')
    """
    visible = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    return visible if len(visible) <= most else f"...{visible[3 - most :]}"


def duration(seconds: float) -> str:
    """A time span in the two largest units that matter.

    Example:
        >>> duration(7.4), duration(754), duration(8100)
        ('7 s', '12 min 34 s', '2 h 15 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
