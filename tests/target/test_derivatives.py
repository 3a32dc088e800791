"""`push` and `pull` against torch.func, which is slow to load and general."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from gradpeel.target import pull, push, split
from gradpeel.target.derivatives import _chain


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(20, 12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.two(torch.relu(functional.relu(self.one(x).relu())))
        return outputs


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.one(x).relu()
        return added


CHAINS = {
    "linear": nn.Sequential(nn.Linear(20, 5)),
    "no bias": nn.Sequential(nn.Linear(20, 12, bias=False), nn.ReLU(), nn.Linear(12, 5)),
    "deep": nn.Sequential(nn.ReLU(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()),
    "dropout": nn.Sequential(nn.Dropout(0.5), nn.Linear(20, 7), nn.Identity()).eval(),
    "functional": Functional(),
}
OTHERS = {
    "tanh": nn.Sequential(nn.Linear(20, 12), nn.Tanh(), nn.Linear(12, 5)),
    "norm": nn.Sequential(nn.LayerNorm(20), nn.Linear(20, 5)),
    "skip": Skipping(),
}


def rows(count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 20, generator=generator, dtype=torch.float64)
    x[0, :3] = 0.0  # the kink of a ReLU at the beginning
    return x.to(dtype), torch.randn(count, 20, generator=generator, dtype=torch.float64).to(dtype)


def traced(module: nn.Module, dtype: torch.dtype) -> fx.GraphModule:
    return fx.symbolic_trace(module.to(dtype)).requires_grad_(False)


@pytest.mark.parametrize("count", [1, 2, 33, 300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_both_equal_torch_func_bit_by_bit(name: str, dtype: torch.dtype, count: int) -> None:
    module = traced((CHAINS | OTHERS)[name], dtype)
    assert (_chain(module) is None) == (name in OTHERS)
    x, along = rows(count, dtype)
    outputs, change = push(module, x, along)
    expected, expected_change = torch.func.jvp(module, (x,), (along,))[:2]
    assert torch.equal(outputs, expected)
    assert torch.equal(change, expected_change)
    gradients = torch.linspace(-1, 1, outputs.numel(), dtype=dtype).view_as(outputs)
    assert torch.equal(pull(module, x, gradients), torch.func.vjp(module, x)[1](gradients)[0])
    assert not outputs.requires_grad
    assert not change.requires_grad


def test_a_relu_in_place_leaves_the_input_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(inplace=True))
    tail = split(nn.Sequential(*model, nn.Linear(20, 3)).double()).tail
    x, along = rows(6, torch.float64)
    kept = x.clone()
    assert _chain(tail.rest) is not None
    assert torch.equal(push(tail.rest, x, along)[1], torch.func.jvp(tail.rest, (x,), (along,))[1])
    assert torch.equal(x, kept)


def test_a_hook_on_a_layer_is_differentiated_too() -> None:
    layer = nn.Linear(20, 5).requires_grad_(False)
    module = fx.symbolic_trace(nn.Sequential(layer))
    module.get_submodule("0").register_forward_hook(lambda *given: given[2] * 3)
    x, along = rows(2, torch.float32)
    torch.testing.assert_close(
        push(module, x, along)[1], 3 * functional.linear(along, layer.weight)
    )


def test_outputs_that_ignore_the_input_have_no_gradient() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(len(x), 2)

    x, _ = rows(3, torch.float64)
    assert torch.equal(pull(Constant(), x, torch.ones(3, 2)), torch.zeros_like(x))
