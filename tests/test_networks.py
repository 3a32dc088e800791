from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.networks import mlp, mlp_from_state
from gradpeel.target import split


def _mlp(seed: int = 0, **settings_: Any) -> nn.Sequential:
    sizes: dict[str, Any] = {"features": 12, "classes": 3, "hidden": (7, 5)}
    return mlp(**(sizes | settings_), rng=np.random.default_rng(seed))


def _linears(network: nn.Sequential) -> list[nn.Linear]:
    return [module for module in network if isinstance(module, nn.Linear)]


def test_layers_and_dtypes() -> None:
    assert [type(module).__name__ for module in _mlp()] == [
        *["Linear", "ReLU"] * 2,
        "Linear",
    ]
    assert {parameter.dtype for parameter in _mlp().parameters()} == {torch.float64}
    half = _mlp(dtype=torch.float32)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}
    assert torch.equal(_linears(half)[0].weight, _linears(_mlp())[0].weight.float())
    assert all(parameter.requires_grad for parameter in half.parameters())


def test_a_sample_shape_brings_a_flatten() -> None:
    network = _mlp(sample_shape=(2, 2, 3))
    assert isinstance(network[0], nn.Flatten)
    assert network(torch.rand(4, 2, 2, 3, dtype=torch.float64)).shape == (4, 3)


def test_paper_law() -> None:
    network = mlp(100, 10, (200, 80), rng=np.random.default_rng(0), sigma=0.5)
    first, second, third = _linears(network)
    assert kstest(first.weight.detach().flatten(), norm(scale=0.5).cdf).pvalue > 1e-3
    for layer, width in ((second, 280), (third, 90)):
        bound = (6 / width) ** 0.5
        law = (-bound, 2 * bound)
        assert kstest(layer.weight.detach().flatten(), "uniform", args=law).pvalue > 1e-3
    assert not any(layer.bias.any() for layer in (first, second, third))


def test_torch_law() -> None:
    network = mlp(100, 50, (400,), rng=np.random.default_rng(0), init="torch")
    for layer, bound in zip(_linears(network), (0.1, 0.05), strict=True):
        for values in (layer.weight, layer.bias):
            law = (-bound, 2 * bound)
            assert kstest(values.detach().flatten(), "uniform", args=law).pvalue > 1e-3


@pytest.mark.parametrize("init", ["paper", "torch"])
def test_a_seed_names_a_network(init: Literal["paper", "torch"]) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (_mlp(seed, init=init).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        (
            {"hidden": ()},
            "hidden=(): expected at least one hidden layer",
        ),
        (
            {"hidden": (7, 0)},
            "features=12, hidden=(7, 0), classes=3: expected positive sizes",
        ),
        (
            {"hidden": (7, 10**30)},
            f"a layer of {10**30} neurons or inputs: expected at most 2147483648",
        ),
        ({"init": "zeros"}, "init='zeros': expected 'paper' or 'torch'"),
        ({"sigma": 0.0}, "sigma=0.0: expected a positive number"),
        ({"sample_shape": (5, 5)}, "sample_shape=(5, 5): expected 12 values in all"),
    ],
)
def test_mlp_errors(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _mlp(**settings_)
    assert str(caught.value) == message


def _state(names: list[str], widths: list[int], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, inputs, outputs in zip(names, widths[:-1], widths[1:], strict=True):
        state[f"{name}.weight"] = torch.randn(outputs, inputs, generator=generator)
        state[f"{name}.bias"] = torch.randn(outputs, generator=generator)
    return state


def _run(state: Mapping[str, Tensor], names: list[str], x: Tensor) -> Tensor:
    for name in names[:-1]:
        x = torch.relu(x @ state[f"{name}.weight"].T + state[f"{name}.bias"])
    return x @ state[f"{names[-1]}.weight"].T + state[f"{names[-1]}.bias"]


NAMINGS = [
    (["0", "2"], [4, 6, 3]),
    (["fc1", "fc2", "fc3"], [4, 6, 5, 3]),
    (["net.0", "net.2"], [4, 6, 3]),
    (["body.0.linear", "body.1.linear", "head"], [4, 6, 5, 3]),
    (["input", "hidden", "output"], [4, 6, 5, 3]),  # names out of order: shapes decide
    ([str(2 * at) for at in range(7)], [5] * 7 + [3]),  # shapes alike: 2 before 10
    (["0", "2", "4"], [6, 4, 6, 3]),  # the input is as wide as a hidden layer
    (["layer09", "layer10", "layer011"], [4, 4, 4, 4]),
]


@pytest.mark.parametrize(("names", "widths"), NAMINGS)
def test_a_state_dict_is_rebuilt(names: list[str], widths: list[int]) -> None:
    state = _state(names, widths)
    # As a safetensors file would hand them out: sorted by name.
    network = mlp_from_state({name: state[name] for name in sorted(state)})
    rebuilt = dict(network.named_parameters())
    assert set(rebuilt) == set(state)
    assert all(torch.equal(rebuilt[name], state[name]) for name in state)
    x = torch.randn(5, widths[0], generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(network(x), _run(state, names, x))
    assert split(network).weight_name == f"{names[0]}.weight"


@settings(deadline=None, max_examples=60)
@given(
    widths=st.lists(st.integers(1, 4), min_size=3, max_size=14),
    data=st.data(),
)
def test_numbered_layers_come_back_in_order(widths: list[int], data: st.DataObject) -> None:
    names = [str(2 * at) for at in range(len(widths) - 1)]
    state = _state(names, widths)
    shuffled = data.draw(st.permutations(list(state)))
    network = mlp_from_state({name: state[name] for name in shuffled})
    x = torch.randn(3, widths[0], generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(network(x), _run(state, names, x))


@pytest.mark.parametrize(("layers", "width"), [(1, None), (2, 5), (3, 5)])
def test_the_first_layers_of_a_network_are_enough(layers: int, width: int | None) -> None:
    names = ["net.0", "net.2", "net.4", "net.6"]
    state = _state(names, [4, 6, 5, 5, 3])
    first = {name: state[name] for name in list(state)[: 2 * layers]}
    target = split(mlp_from_state(first))
    assert target.weight_name == "net.0.weight"
    assert torch.equal(target.weight, state["net.0.weight"])
    assert target.tail.unknown == ("the model ends at the target" if layers == 1 else None)
    layer = target.tail.next_layer
    assert (None if layer is None else layer.out_features) == width


def test_rebuilding_copies() -> None:
    state = _state(["0", "2"], [4, 6, 3])
    network = mlp_from_state(state)
    with torch.no_grad():
        _linears(network)[0].weight.zero_()
    assert bool(state["0.weight"].any())


def test_rebuilding_keeps_the_dtype_of_a_built_network() -> None:
    network = _mlp(sample_shape=(12,))
    rebuilt = mlp_from_state(network.state_dict())
    assert list(rebuilt.state_dict()) == list(network.state_dict())
    x = torch.rand(4, 12, dtype=torch.float64)
    assert torch.equal(rebuilt(x), network(x))


def _changed(**changes: Tensor | None) -> dict[str, Tensor]:
    """A good state of two layers with some tensors replaced, added or (None) taken away."""
    state: dict[str, Tensor | None] = {**_state(["a", "b"], [4, 6, 3])}
    for name, tensor in changes.items():
        state[name.replace("_", ".")] = tensor
    return {name: tensor for name, tensor in state.items() if tensor is not None}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "state of 0 layers: expected at least one"),
        (_changed(b_bias=None), "b.weight without b.bias: expected both"),
        (_changed(b_weight=None), "b.bias without b.weight: expected both"),
        (_changed(a_bias=torch.zeros(5)), "a.bias of shape (5,): expected (6,)"),
        (_changed(a_bias=torch.zeros(6, 1)), "a.bias of shape (6, 1): expected (6,)"),
        (
            _changed(a_weight=torch.zeros(6, 4, 3, 3)),
            "a.weight of shape (6, 4, 3, 3): expected (out, in), not empty",
        ),
        (
            _changed(a_weight=torch.zeros(6, 0)),
            "a.weight of shape (6, 0): expected (out, in), not empty",
        ),
        (
            _changed(b_weight=torch.zeros(3, 5)),
            "b.weight of shape (3, 5): expected 6 inputs, the outputs of a.weight",
        ),
        (
            _changed(b_weight=torch.full((3, 6), torch.nan)),
            "b.weight with NaN or infinite values: expected finite values",
        ),
        (
            _changed(a_running=torch.zeros(6)),
            "a.running: expected only names such as '0.weight' and '0.bias'",
        ),
        (
            {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)},
            "weight: expected only names such as '0.weight' and '0.bias'",
        ),
        (
            {name: tensor.long() for name, tensor in _changed().items()},
            "a.weight of dtype torch.int64: expected one floating-point type",
        ),
        (
            _changed(b_bias=torch.zeros(3).double()),
            "a.weight of dtype torch.float32: expected one floating-point type",
        ),
        (
            _state(["a", "a.b"], [4, 6, 3]),
            "a.b: expected a path that does not lead through a layer",
        ),
        (
            _state(["forward", "out"], [4, 6, 3]),
            "forward: expected a path of free and plain module names",
        ),
        (
            _state(["net..0", "net..1"], [4, 6, 3]),
            "net..0: expected a path of free and plain module names",
        ),
        *(
            (
                _state(["0", name], [4, 6, 3]),
                f"{name}: expected a path of free and plain module names",
            )
            for name in ('a") or print("hello") or ("', "it's", "a\\", "a\nb", "a\x00b", "class")
        ),
        (
            _state(["a.0", "b.0", "a.1"], [4, 6, 5, 3]),
            "b.0.weight: expected before a.1.weight by their shapes",
        ),
    ],
)
def test_state_errors(state: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError) as caught:
        mlp_from_state(state)
    assert str(caught.value) == message
