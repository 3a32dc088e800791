"""Tails users have: deep, smooth, normalised, with residual blocks, with few and many classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gradpeel.decoder import peel
from gradpeel.signals import contributions, signals
from gradpeel.target import split
from support import (
    SmallRound,
    first_is_fast,
    make_batch,
    make_model,
    make_round,
    readable,
    recovered,
    round_of,
)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Add what is inside to what comes in."""
        inner: Tensor = self.inner(x)
        return x + inner


def eval_norm(width: int) -> nn.BatchNorm1d:
    """A batch norm in eval mode that has seen data."""
    norm = nn.BatchNorm1d(width).double()
    norm(torch.randn(50, width, dtype=torch.float64) * 2 + 1)
    return norm.eval()


TAILS: dict[str, Callable[[], list[nn.Module]]] = {
    "one layer": lambda: [nn.Linear(80, 5)],
    "no bias": lambda: [nn.Linear(80, 5, bias=False)],
    "relu": lambda: [nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 5)],
    "gelu": lambda: [nn.Linear(80, 20), nn.GELU(), nn.Linear(20, 5)],
    "tanh and layer norm": lambda: [
        nn.Linear(80, 20),
        nn.Tanh(),
        nn.LayerNorm(20),
        nn.Linear(20, 5),
    ],
    "layer norm first": lambda: [nn.LayerNorm(80), nn.Linear(80, 5)],
    "batch norm in eval mode first": lambda: [eval_norm(80), nn.Linear(80, 5)],
    "batch norm in eval mode": lambda: [
        nn.Linear(80, 20),
        eval_norm(20),
        nn.ReLU(),
        nn.Linear(20, 5),
    ],
    "residual block": lambda: [nn.Linear(80, 20), Block(20), nn.LayerNorm(20), nn.Linear(20, 5)],
    "residual block first": lambda: [Block(80), nn.Linear(80, 5)],
    "four layers": lambda: [
        nn.Linear(80, 40),
        nn.ReLU(),
        nn.Linear(40, 40),
        nn.GELU(),
        nn.Linear(40, 30),
        nn.Tanh(),
        nn.Linear(30, 5),
    ],
    "dropout in eval mode": lambda: [nn.Dropout(0.5).eval(), nn.Linear(80, 5)],
}


def round_with(tail: str, *, seed: int, dtype: torch.dtype = torch.float64) -> SmallRound:
    torch.manual_seed(seed)
    body = make_model(40, 80, 5, seed=seed)
    model = nn.Sequential(body[0], body[1], *TAILS[tail]()).to(dtype)
    x, y = make_batch(40, 6, 5, seed=seed)
    return round_of(model, x, y)


def clear(round_: SmallRound, least: float) -> set[int]:
    """Samples that peeling reaches and that leave a trace in the update."""
    exposed = round_.exposure
    strength = signals(
        contributions(split(round_.model).to(torch.float64), round_.x, round_.y, exposed.copies),
        exposed,
    )
    return set((exposed.reached & (strength > least)).nonzero()[:, 0].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("seed", range(3))
def test_any_differentiable_tail(tail: str, seed: int) -> None:
    round_ = round_with(tail, seed=seed)
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_)
    assert clear(round_, 1e-8) <= found
    assert bool((recovery.multiplicities == 1).all())
    assert recovery.complete == (len(found) == 6)
    # As far as the activations enter a Linear directly, its gradient is evidence.
    direct = split(round_.model).tail.next_layer is not None
    assert ("next layer" in recovery.kinds) == direct


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("seed", range(2))
def test_any_differentiable_tail_in_float32(tail: str, seed: int) -> None:
    round_ = round_with(tail, seed=seed, dtype=torch.float32)
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_, within=1e-3)
    if split(round_.model).tail.next_layer is not None:
        assert clear(round_, 1e-2) <= found


@pytest.mark.parametrize("hidden", [(), (30,), (30, 30), (30, 30, 30)])
@pytest.mark.parametrize("dtype", first_is_fast([torch.float64, torch.float32]))
def test_one_to_four_layers_behind_the_target(hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    for seed in range(3):
        round_ = make_round(40, 120, 8, 10, hidden, seed=seed, dtype=dtype)
        recovery = peel(round_.model, round_.update)
        found = recovered(recovery, round_, within=1e-3)
        assert clear(round_, 1e-8 if dtype == torch.float64 else 1e-2) <= found
        assert len(found) >= 5


@pytest.mark.parametrize("classes", [2, 10, 62, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.slow
def test_few_and_many_classes(classes: int, dtype: torch.dtype) -> None:
    round_ = make_round(40, 200, 8, classes, seed=classes, dtype=dtype)
    recovery = peel(round_.model, round_.update)
    found = recovered(recovery, round_, within=1e-3)
    assert readable(recovery, round_.x) == set(range(8))
    assert bool((recovery.multiplicities == 1).all())
    # Two classes in few digits prove too little: the structure must, where it can.
    assert found == set(range(8)) or (classes == 2 and dtype == torch.float32)
