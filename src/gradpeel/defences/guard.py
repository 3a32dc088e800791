"""The guard as a defence: see `gradpeel.guard`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradpeel.attacker import Attacker
from gradpeel.checks import is_number
from gradpeel.defences.defence import Sending
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["Guard"]


@dataclass(frozen=True)
class Guard:
    """Lower the rank of the layer's gradient until no candidate is near a sample of the batch.

    Attributes:
        apart: how far every candidate must be from every sample, see `gradpeel.guard`.
        check: whether the client also runs the decoder on the result; an audit does that anyway.
        layer: name of the layer; None for the first one that can be read.
    """

    apart: float = 0.2
    check: bool = False
    layer: str | None = None

    name: ClassVar[str] = "guard"

    def __post_init__(self) -> None:
        if not (is_number(self.apart) and 0 <= self.apart < 1):
            raise InputError(f"apart={self.apart!r}: expected a number from 0 to below 1")
        Attacker(layer=self.layer)

    def __str__(self) -> str:
        return f"{self.name}:{self.apart:g}"

    def apply(self, update: Update, sending: Sending) -> Update:
        """The guarded update."""
        # The guard simulates a client, which has defences.
        from gradpeel.guarding import guard  # noqa: PLC0415

        return guard(
            sending.model,
            sending.x,
            sending.y,
            update=update,
            client=sending.client,
            attacker=Attacker(layer=self.layer),
            apart=self.apart,
            check=self.check,
            seed=sending.seed,
        ).update
