"""Splitting: the parts make up the network again, whatever way it is written."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from gradpeel.errors import (
    InputError,
)
from gradpeel.target import Target, split, with_first_layer
from gradpeel.target.front import Normalise

IMAGE = (3, 2, 2)


class Written(nn.Module):
    """A network written as a function of its layers, the way people write `forward`."""

    def __init__(self, written: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.written = written
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.written(self, x)


class FunctionalMLP(nn.Module):
    def __init__(self, front: nn.Module, layers: list[nn.Linear]) -> None:
        super().__init__()
        self.front = front
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x)
        for layer in list(self.layers)[:-1]:
            x = functional.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


class Normalize(nn.Module):
    """Stands in for torchvision's: values a channel, in lists."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 3:  # a branch on the input, as the original has
            raise ValueError
        mean, std = torch.tensor(self.mean).to(x), torch.tensor(self.std).to(x)
        return (x - mean[:, None, None]) / std[:, None, None]


def dense(features: int = 12, neurons: int = 8) -> nn.Linear:
    return nn.Linear(features, neurons)


def batch_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(6, *shape, generator=generator, dtype=torch.float64).to(dtype)


def assert_splits(model: nn.Module, shape: tuple[int, ...]) -> Target:
    """The parts are the network, its samples come back, and its tail has both derivatives."""
    model = model.double()
    target, x = split(model), batch_of(shape)
    torch.testing.assert_close(target.logits(x), model(x))
    torch.testing.assert_close(target.front.invert(target.front(x), shape), x)
    activations = target.pre_activations(target.front(x)).relu()
    kept, along = activations.clone(), torch.ones_like(activations)
    logits, forward = torch.func.jvp(target.tail, (activations,), (along,))[:2]
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).reshape(logits.shape)
    backward = torch.func.vjp(target.tail, activations)[1](weights)[0]
    torch.testing.assert_close((forward * weights).sum(), (backward * along).sum())
    for row, expected in zip(activations, logits, strict=True):
        torch.testing.assert_close(target.tail(row[None].repeat(2, 1))[0], expected)
    assert torch.equal(activations, kept), "the tail overwrote its input"
    if target.tail.next_layer is not None:
        torch.testing.assert_close(
            target.tail.rest(target.tail.next_layer(activations)), target.tail(activations)
        )
    return target


@settings(deadline=None, max_examples=40)
@given(
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    shape=st.sampled_from([(5,), (3, 2), IMAGE]),
    functional_style=st.booleans(),
    normalised=st.sampled_from(["no", "per channel", "uniform", "batch norm"]),
    classes=st.integers(1, 4),
)
def test_the_parts_of_any_mlp_make_up_the_network(
    hidden: list[int],
    shape: tuple[int, ...],
    functional_style: bool,
    normalised: str,
    classes: int,
) -> None:
    front: list[nn.Module] = []
    if normalised == "per channel":
        front.append(Normalise(torch.linspace(0, 1, shape[0]), torch.linspace(1, 2, shape[0])))
    elif normalised == "uniform":
        front.append(Normalise(0.5, 0.25))
    front.append(nn.Flatten())
    features = int(torch.tensor(shape).prod())
    if normalised == "batch norm":
        norm = nn.BatchNorm1d(features).double()
        norm(batch_of((features,)))
        front.append(norm.eval())
    widths = [features, *hidden, classes]
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    model: nn.Module
    if functional_style:
        model = FunctionalMLP(nn.Sequential(*front), layers)
    else:
        between = [part for layer in layers[:-1] for part in (layer, nn.ReLU())]
        model = nn.Sequential(*front, *between, layers[-1])
    target = assert_splits(model, shape)
    assert (target.neurons, target.features) == (hidden[0], features)
    named = dict(model.named_parameters())
    assert torch.equal(target.weight, named[target.weight_name])
    assert torch.equal(target.bias, named[target.bias_name])
    assert target.tail.next_layer is not None
    assert target.tail.next_weight_name is not None
    assert torch.equal(target.tail.next_layer.weight, named[target.tail.next_weight_name])
    assert target.tail.next_bias_name is not None
    assert torch.equal(target.tail.next_layer.bias, named[target.tail.next_bias_name])


def mlp(written: Callable[..., Any], **layers: nn.Module) -> Written:
    """A network of two layers, `one` and `two`, and whatever else it needs."""
    return Written(written, **{"one": dense(), "two": nn.Linear(8, 4), **layers})


def batch_norm() -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, -1.0, 2.0]))
        norm.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    norm(batch_of(IMAGE, torch.float32))
    return norm.eval()


def branch(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def in_place_skip(self: Any, x: Tensor) -> Tensor:
    hidden = functional.relu(self.one(x.flatten(1)))
    hidden = hidden.add_(self.mid(hidden))
    return self.two(hidden)  # type: ignore[no-any-return]


def sizes_by_name(self: Any, x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    hidden = self.one(x.view(batch, channels * height * width)).relu()
    return self.two(hidden.view(batch, 2, 4).flatten(1))  # type: ignore[no-any-return]


# What people write, each a network on images; the last entry is the width of the next layer.
WAYS: dict[str, tuple[Callable[[], nn.Module], int | None]] = {
    "modules": (
        lambda: nn.Sequential(nn.Flatten(), dense(), nn.ReLU(), nn.Linear(8, 4)),
        4,
    ),
    "nested": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Identity(), nn.Flatten()),
            nn.Sequential(dense(), nn.ReLU(inplace=True)),
            nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 4)),
        ),
        5,
    ),
    "F.relu": (lambda: mlp(lambda n, x: n.two(functional.relu(n.one(x.flatten(1))))), 4),
    "F.relu in place": (
        lambda: mlp(lambda n, x: n.two(functional.relu(n.one(x.flatten(1)), True))),
        4,
    ),
    "torch.relu": (lambda: mlp(lambda n, x: n.two(torch.relu(n.one(torch.flatten(x, 1))))), 4),
    "x.relu": (
        lambda: mlp(lambda n, x: n.two(n.one(x.flatten(start_dim=1)).relu())),
        4,
    ),
    "x.relu_": (lambda: mlp(lambda n, x: n.two(n.one(x.flatten(1, -1)).relu_())), 4),
    "view size": (lambda: mlp(lambda n, x: n.two(n.one(x.view(x.size(0), -1)).relu())), 4),
    "view shape": (lambda: mlp(lambda n, x: n.two(n.one(x.view((x.shape[0], 12))).relu())), 4),
    "view size()[0]": (
        lambda: mlp(lambda n, x: n.two(n.one(x.view(x.size()[0], 12)).relu())),
        4,
    ),
    "view -1": (lambda: mlp(lambda n, x: n.two(n.one(x.view(-1, 12)).relu())), 4),
    "reshape len": (lambda: mlp(lambda n, x: n.two(n.one(x.reshape(len(x), -1)).relu())), 4),
    "torch.reshape": (
        lambda: mlp(lambda n, x: n.two(n.one(torch.reshape(x, (x.size(0), -1))).relu())),
        4,
    ),
    "sizes by name": (lambda: mlp(sizes_by_name), None),
    "batch size in the tail": (
        lambda: mlp(
            lambda n, x: n.two(n.one(x.flatten(1)).relu().view(x.size(0), -1)).view(len(x), 4),
        ),
        4,
    ),
    "arithmetic": (
        lambda: mlp(lambda n, x: n.two(n.one(((x - 0.5) / 0.25).flatten(1)).relu())),
        4,
    ),
    "more arithmetic": (
        lambda: mlp(
            lambda n, x: n.two(n.one(torch.mul(1 - 2 * x.add(3), 0.5).flatten(1).sub(1)).relu())
        ),
        4,
    ),
    "arithmetic with tensors": (
        lambda: mlp(
            lambda n, x: n.two(
                n.one(
                    (
                        (x - torch.tensor([0.1, 0.2, 0.3])[:, None, None])
                        / n.norm.std.view(-1, 1, 1)
                    ).flatten(1)
                ).relu()
            ),
            norm=Normalise(0.0, [1.0, 2.0, 3.0]),
        ),
        4,
    ),
    "Normalise": (
        lambda: nn.Sequential(
            Normalise([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]),
            nn.Flatten(),
            dense(),
            nn.ReLU(),
            nn.Linear(8, 4),
        ),
        4,
    ),
    "torchvision's Normalize": (
        lambda: nn.Sequential(
            Normalize([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]),
            nn.Flatten(),
            dense(),
            nn.ReLU(),
            nn.Linear(8, 4),
        ),
        4,
    ),
    "batch norm in front": (
        lambda: nn.Sequential(batch_norm(), nn.Flatten(), dense(), nn.ReLU(), nn.Linear(8, 4)),
        4,
    ),
    "inactive dropout": (
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Dropout(),
            dense(),
            nn.Dropout(),
            nn.ReLU(),
            nn.Dropout(),
            nn.Flatten(),
            nn.Linear(8, 4, bias=False),
        ).eval(),
        4,
    ),
    "inactive functional dropout": (
        lambda: mlp(
            lambda n, x: n.two(
                functional.dropout(n.one(x.flatten(1)).relu(), 0.3, training=n.training)
            )
        ).eval(),
        4,
    ),
    "nothing after": (lambda: nn.Sequential(nn.Flatten(), dense(), nn.ReLU()), None),
    "LayerNorm first in the tail": (
        lambda: nn.Sequential(
            nn.Flatten(), dense(), nn.ReLU(), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)
        ),
        None,
    ),
    "batch norm in the tail": (
        lambda: nn.Sequential(
            nn.Flatten(), dense(), nn.ReLU(), nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
        ).eval(),
        5,
    ),
    "convolution in the tail": (
        lambda: nn.Sequential(
            nn.Flatten(),
            dense(),
            nn.ReLU(),
            nn.Unflatten(1, (2, 2, 2)),
            nn.Conv2d(2, 3, 2),
            nn.Flatten(),
            nn.LogSoftmax(1),
        ),
        None,
    ),
    "residual block in the tail": (
        lambda: mlp(
            lambda n, x: n.two((h := n.one(x.flatten(1)).relu()) + n.mid(h)), mid=nn.Linear(8, 8)
        ),
        None,
    ),
    "in-place skip in the tail": (lambda: mlp(in_place_skip, mid=nn.Linear(8, 8)), None),
    "next layer called twice": (
        lambda: mlp(
            lambda n, x: n.two(n.mid(n.mid(n.one(x.flatten(1)).relu()).relu())), mid=nn.Linear(8, 8)
        ),
        None,
    ),
    "parametrised next layer": (
        lambda: mlp(
            lambda n, x: n.two(n.one(x.flatten(1)).relu()),
            two=parametrizations.weight_norm(nn.Linear(8, 4)),
        ),
        None,
    ),
    "activations cut in two": (
        lambda: mlp(
            lambda n, x: n.two(n.one(x.flatten(1)).relu().view(-1, 4)).view(-1, 4),
            two=nn.Linear(4, 2),
        ),
        None,
    ),
    "a layer nobody calls": (
        lambda: mlp(
            lambda n, x: n.two(n.one(x.flatten(1)).relu()), zero=nn.Linear(3, 3), drop=nn.Identity()
        ),
        4,
    ),
}


def records_reshape() -> bool:
    """Whether this torch can trace `torch.reshape` to a traced size; older releases cannot."""
    try:
        fx.symbolic_trace(Written(lambda _, x: torch.reshape(x, (x.size(0), -1))))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(("make", "width"), WAYS.values(), ids=WAYS)
def test_every_way_of_writing_it_splits(make: Callable[[], nn.Module], width: int | None) -> None:
    if make is WAYS["torch.reshape"][0] and not records_reshape():
        pytest.skip("this release of torch cannot trace torch.reshape to a traced size")
    target = assert_splits(make(), IMAGE)
    ends = isinstance(target.tail.rest, nn.Identity) and width is None
    assert target.tail.unknown == ("the model ends at the target" if ends else None)
    layer = target.tail.next_layer
    assert (None if layer is None else layer.out_features) == width


def test_names_are_those_of_the_model() -> None:
    target = split(mlp(lambda n, x: n.two(n.one(x).relu()), two=nn.Linear(8, 4, bias=False)))
    assert (target.weight_name, target.bias_name) == ("one.weight", "one.bias")
    assert (target.tail.next_weight_name, target.tail.next_bias_name) == ("two.weight", None)


def test_a_module_registered_twice_but_called_once_has_its_first_name() -> None:
    layer = dense()
    model = mlp(lambda n, x: n.two(n.again(x).relu()), one=layer, again=layer)
    assert split(model).weight_name == "one.weight"


def test_an_optional_argument_keeps_its_default() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: Tensor, mask: Tensor | None = None, **options: Any) -> Any:  # noqa: ARG002
            return self.layers(x if mask is None else x * mask)

    assert_splits(Scaled(), (12,))


def test_the_model_and_the_random_numbers_stay_as_they_were() -> None:
    model = mlp(lambda n, x: n.two(n.one(x * torch.tensor(2.0)).relu()))
    before, attributes = copy.deepcopy(model.state_dict()), set(dir(model))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    target = split(model)
    assert torch.equal(torch.rand(3), expected)
    assert set(dir(model)) == attributes
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    with torch.no_grad():
        target.weight.add_(1)
        for parameter in target.tail.parameters():
            parameter.add_(1)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_nothing_in_a_target_is_trained() -> None:
    target = split(mlp(lambda n, x: n.two(n.norm(n.one(x).relu())), norm=nn.LayerNorm(8)))
    tensors = [target.weight, target.bias, *target.tail.parameters()]
    assert not any(tensor.requires_grad for tensor in tensors)
    activations = torch.rand(2, 8, requires_grad=True)
    target.tail(activations).sum().backward()
    assert activations.grad is not None


def test_a_target_moves_to_another_dtype_as_a_copy() -> None:
    model = nn.Sequential(
        Normalise(0.3, 0.7), nn.Flatten(), dense(), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 4)
    )
    target, x = split(model), batch_of(IMAGE)
    wide = target.to(dtype=torch.float64)
    torch.testing.assert_close(wide.logits(x), model.double()(x))
    assert wide.logits(x.float()).dtype == torch.float64
    assert target.weight.dtype == next(target.tail.parameters()).dtype == torch.float32
    assert target.logits(x).dtype == torch.float32


def test_values_that_overflow_are_no_reason_to_refuse() -> None:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4), Written(lambda _, x: x.log())).half()
    nn.init.constant_(model.get_parameter("2.bias"), -1e4)
    assert split(model).tail(torch.zeros(2, 8).half()).isnan().all()


def test_repr_says_the_shape() -> None:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 4))
    assert repr(split(model)) == "Target(8 neurons on 12 features, next layer 4 wide)"
    assert repr(split(model[:2])) == "Target(8 neurons on 12 features, no next layer)"


def test_a_shaped_first_layer_replaces_the_old_one_in_a_copy() -> None:
    model = nn.Sequential(nn.Flatten(), dense(), nn.ReLU(), nn.Linear(8, 4)).half()
    target, before = split(model), copy.deepcopy(model.state_dict())
    weight, bias = torch.ones(8, 12).double(), torch.full((8,), -1.0).double()
    shaped = with_first_layer(model, target, weight, bias)
    assert torch.equal(split(shaped).weight, weight.half())
    assert torch.equal(split(shaped).bias, bias.half())
    assert torch.equal(split(shaped).tail.get_parameter("next_layer.weight"), before["3.weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in shaped.parameters())


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        ((8, 11), (8,), "weight of shape (8, 11): expected (8, 12), as '0.weight' has"),
        ((8, 12), (1,), "bias of shape (1,): expected (8,), as '0.bias' has"),
    ],
)
def test_a_shaped_layer_must_fit(
    weight: tuple[int, ...], bias: tuple[int, ...], message: str
) -> None:
    model = nn.Sequential(dense(), nn.ReLU())
    with pytest.raises(InputError) as caught:
        with_first_layer(model, split(model), torch.zeros(weight), torch.zeros(bias))
    assert str(caught.value) == message


def test_only_modules_can_be_split() -> None:
    with pytest.raises(InputError, match=r"^model of type dict: expected a torch\.nn\.Module$"):
        split({})  # type: ignore[arg-type]


def test_tracing_leaves_len_alone() -> None:
    split(mlp(lambda n, x: n.two(n.one(x.reshape(len(x), -1)).relu())))
    assert "len" not in globals()


def test_a_target_may_share_the_model_s_parameters() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.grad = torch.ones(5, 6)
    own, shared = split(model), split(model, share=True)
    assert shared.weight.data_ptr() == model.get_parameter("0.weight").data_ptr()
    assert own.weight.data_ptr() != shared.weight.data_ptr()
    x = torch.rand(4, 6)
    torch.testing.assert_close(shared.logits(x), own.logits(x))
    # The model itself stays as it is.
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.get_parameter("0.weight").grad is not None


def test_the_tail_knows_the_model_s_names() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    tail = split(model).tail
    names = {tail.names[own]: value for own, value in tail.named_parameters()}
    assert sorted(names) == ["2.bias", "2.weight", "4.bias", "4.weight"]
    for name, value in names.items():
        assert torch.equal(value, model.get_parameter(name))
