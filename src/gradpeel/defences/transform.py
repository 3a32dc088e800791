"""A function of one's own as a defence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from gradpeel.defences.defence import Sending
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["Transform"]


@dataclass(frozen=True)
class Transform:
    """Any function from an update to an update.

    Attributes:
        function: it must be pure: the same update, the same result. If it gives samples different
            weights, it returns an update with `equal_weights=False`.

    Example:
        >>> from dataclasses import replace
        >>> import torch
        >>> def halve(update):
        ...     halves = {name: g / 2 for name, g in update.gradients.items()}
        ...     return replace(update, gradients=halves)
        >>> print(Transform(halve))
        halve
        >>> Transform(halve).apply(Update({"w": torch.ones(2)}), None).gradients["w"]
        tensor([0.5000, 0.5000])
    """

    function: Callable[[Update], Update]

    name: ClassVar[str] = "transform"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"transform={self.function!r}: expected a function of an update")

    def __str__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """What the function makes of the update."""
        del sending
        found: object = self.function(update)
        if not isinstance(found, Update):
            kind = type(found).__name__
            raise InputError(f"transform={self}: returned {kind}: expected gradpeel.Update")
        return found
