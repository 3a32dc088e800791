"""What a defence is: a value that changes an update before it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor, nn

from gradpeel.inputs import NetworkInput
from gradpeel.update import Update

if TYPE_CHECKING:
    from gradpeel.client import Client

__all__ = ["Defence", "Sending"]


@dataclass(frozen=True, eq=False)
class Sending:
    """What a client has at hand when it is about to send an update.

    Attributes:
        model: the network as it received it, in its own dtype.
        x: its batch.
        y: labels or targets.
        client: how it trained.
        seed: of anything random.
    """

    model: nn.Module
    x: NetworkInput
    y: Tensor
    client: Client
    seed: int


class Defence(Protocol):
    """A frozen value; `str` gives it as the command line and plans spell it.

    Attributes:
        name: what it is called there.
    """

    name: ClassVar[str]

    def apply(self, update: Update, sending: Sending) -> Update:
        """The update to send instead, with what is known of it."""
        ...
