"""A client's small network, its records, and the weights it would return."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

import gradpeel as gp

CLIENT = gp.Client(lr=0.1, local_steps=1)
RECORDS = 4


def make_model() -> nn.Module:
    """The architecture; its weights are replaced by those of the server."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 3)).double()


def load_batch(part: int = 0) -> tuple[Tensor, Tensor]:
    """The records of a client."""
    generator = torch.Generator().manual_seed(part)
    return torch.rand(RECORDS, 20, generator=generator).double(), torch.arange(RECORDS) % 3


def train(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The weights after one step on a batch, as any training loop would leave them."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(x), y).backward()
    optimiser.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


@dataclass(frozen=True)
class Trained:
    """What a client received and what it would return."""

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    x: Tensor
    y: Tensor


@cache
def trained() -> Trained:
    """One round of client 0."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 3)).double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = load_batch()
    return Trained(before, train(model, x, y), x, y)


def readable(after: dict[str, Tensor], part: int = 0) -> int:
    """How many of a client's records can be read from the weights that it returned."""
    model = make_model()
    model.load_state_dict(trained().before)
    update = gp.Update.from_weights(trained().before, after, lr=0.1, steps=1, batch_size=RECORDS)
    return gp.check(model, *load_batch(part), update=update, client=CLIENT).readable
