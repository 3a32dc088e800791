"""Fewer digits: signs, eight bits, or half precision, as compression sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gradpeel.defences.defence import Sending
from gradpeel.update import Update

__all__ = ["Bfloat16", "Float16", "Int8", "Sign"]


@dataclass(frozen=True)
class Sign:
    """Send the sign of every entry, times the mean size of its gradient's entries (signSGD).

    Example:
        >>> Sign().apply(Update({"w": torch.tensor([3.0, -1.0])}), None).gradients["w"]
        tensor([ 2., -2.])
    """

    name: ClassVar[str] = "sign"

    def __str__(self) -> str:
        return self.name

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The signs."""
        del sending
        return _each(update, lambda g: g.sign() * g.double().abs().mean().to(g.dtype))


@dataclass(frozen=True)
class Int8:
    """Round every entry to one of 255 steps between the largest of its gradient and its negative.

    Example:
        >>> Int8().apply(Update({"w": torch.tensor([127.0, 0.6])}), None).gradients["w"]
        tensor([127.,   1.])
    """

    name: ClassVar[str] = "int8"

    def __str__(self) -> str:
        return self.name

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The rounded update, in its own dtype."""
        del sending
        return _each(update, _in_steps)


def _in_steps(given: Tensor) -> Tensor:
    step = given.double().abs().amax() / 127 if given.numel() else given.new_zeros(())
    if not float(step):
        return given
    rounded: Tensor = ((given.double() / step).round() * step).to(given.dtype)
    return rounded


@dataclass(frozen=True)
class Bfloat16:
    """Send bfloat16, whatever the client computes in."""

    name: ClassVar[str] = "bfloat16"

    def __str__(self) -> str:
        return self.name

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The update in bfloat16: its dtype tells how exact it is."""
        del sending
        return _each(update, lambda g: g.to(torch.bfloat16))


@dataclass(frozen=True)
class Float16:
    """Send float16, whatever the client computes in."""

    name: ClassVar[str] = "float16"

    def __str__(self) -> str:
        return self.name

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The update in float16: its dtype tells how exact it is."""
        del sending
        return _each(update, lambda g: g.to(torch.float16))


def _each(update: Update, change: Callable[[Tensor], Tensor]) -> Update:
    return replace(update, gradients={name: change(g) for name, g in update.gradients.items()})
