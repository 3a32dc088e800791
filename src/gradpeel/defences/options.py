"""Defences as a command line or a plan spells them: `name:value`, several joined by `+`.

Example:
    >>> parse("clip:1+noise:0.01")
    (UpdateClipping(norm=1.0), Noise(deviation=0.01))
    >>> parse("dp:1,0.5")
    (PerExampleClipping(norm=1.0, noise=0.5),)
    >>> parse("none"), spell(parse("sign")), spell(())
    ((), 'sign', 'none')
    >>> parse("prayer")
    Traceback (most recent call last):
    gradpeel.errors.InputError: defence='prayer': expected none or some of bfloat16, clip, dp,
    float16, guard, int8, noise, relative-noise, sign, top-k
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from gradpeel.defences.defence import Defence

__all__ = ["DEFENCES", "NONE", "parse", "spell"]

NONE = "none"
DEFENCES: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "bfloat16": ("Bfloat16", 0, 0),
        "clip": ("UpdateClipping", 1, 1),
        "dp": ("PerExampleClipping", 1, 2),
        "float16": ("Float16", 0, 0),
        "guard": ("Guard", 0, 1),
        "int8": ("Int8", 0, 0),
        "noise": ("Noise", 1, 1),
        "relative-noise": ("RelativeNoise", 1, 1),
        "sign": ("Sign", 0, 0),
        "top-k": ("TopK", 1, 1),
    }
)
"""Classes by name, with the least and the largest number of values that each takes."""


def parse(text: str) -> tuple[Defence, ...]:
    """Make the defences that a text names.

    Raises:
        InputError: an unknown name, or values that break a rule.
    """
    if text == NONE:
        return ()
    return tuple(_parse_one(part) for part in text.split("+"))


def spell(defences: Iterable[object]) -> str:
    """The text that names some defences."""
    return "+".join(map(str, defences)) or NONE


def _parse_one(text: str) -> Defence:
    name, _, given = text.partition(":")
    if name not in DEFENCES:
        rule = f"expected {NONE} or some of {', '.join(DEFENCES)}"
        raise InputError(f"defence={text!r}: {rule}")
    kind, least, most = DEFENCES[name]
    parts = given.split(",") if given else []
    if not least <= len(parts) <= most:
        wanted = f"{least} to {most} values" if least < most else f"{most or 'no'} value"
        raise InputError(f"defence={text!r}: expected {name} with {wanted}")
    try:
        # Names are checked without torch, which the defences need.
        values = [float(part) for part in parts]
        made: Defence = getattr(import_module("gradpeel.defences"), kind)(*values)
    except InputError as error:
        raise InputError(f"defence={text!r}: {error}") from None
    except ValueError:
        raise InputError(f"defence={text!r}: expected numbers after the colon") from None
    return made
