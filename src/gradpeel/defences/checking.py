"""What a client was given as defences, checked."""

from __future__ import annotations

from collections.abc import Sequence

from gradpeel.defences.defence import Defence
from gradpeel.defences.per_example import PerExampleClipping
from gradpeel.defences.transform import Transform
from gradpeel.errors import InputError

__all__ = ["as_defences"]


def as_defences(defences: object) -> tuple[Defence, ...]:
    """The defences as values; functions become `Transform`."""
    if isinstance(defences, str) or not isinstance(defences, Sequence):
        raise InputError(f"defences={defences!r}: expected a list of gradpeel.defences")
    found: list[Defence] = []
    for place, one in enumerate(defences):
        if isinstance(one, type) or not (callable(getattr(one, "apply", None)) or callable(one)):
            rule = "expected a value of gradpeel.defences, or a function of an update"
            raise InputError(f"defences={one!r}: {rule}")
        if isinstance(one, PerExampleClipping) and place:
            raise InputError(f"defences={one}: per-example clipping happens first: expected it so")
        found.append(one if hasattr(one, "apply") else Transform(one))
    return tuple(found)
