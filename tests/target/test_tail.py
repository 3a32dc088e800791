"""Tails: those that can be simulated give the client's gradients, the others say why not."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gradpeel.client import local_update
from gradpeel.exposure import exposure
from gradpeel.target import Target, split

FEATURES, NEURONS, BATCH, CLASSES = 6, 9, 5, 3
ENDS = "the model ends at the target"
MIXES = "in training mode, where it mixes the samples of a batch"
AGAIN = "the tail gives another output each time"
ATTENTION = (
    "MultiheadAttention '4.self_attn', Dropout '4.dropout1', Dropout '4.dropout', "
    "Dropout '4.dropout2' are active"
)


class Residual(nn.Module):
    """A block that adds to its input what it makes of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.body(x)
        return added


class Written(nn.Module):
    """Target and ReLU, then a tail written as a function."""

    def __init__(self, tail: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.one = nn.Linear(FEATURES, NEURONS)
        self.layers = nn.ModuleList(layers)
        self.tail = tail

    def forward(self, x: Tensor) -> Any:
        return self.tail(self, self.one(x).relu())


def net(*tail: nn.Module) -> nn.Module:
    """Linear, ReLU and a tail, float64, weights from a fixed seed."""
    return settled(nn.Sequential(nn.Linear(FEATURES, NEURONS), nn.ReLU(), *tail))


def settled(model: nn.Module) -> nn.Module:
    """Parameters and statistics from a fixed seed, so that batch norm has something to do."""
    generator = torch.Generator().manual_seed(0)
    model.double()
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data.copy_(0.2 + torch.rand(tensor.shape, generator=generator).double())
            tensor.data *= torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, -1, 1)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.abs_()
    return model


def batch(size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (size,), generator=generator)


def head(width: int = NEURONS) -> nn.Linear:
    return nn.Linear(width, CLASSES)


def hidden(*kinds: type[nn.Module]) -> list[nn.Module]:
    """Hidden layers with these activations, and a head."""
    layers = [part for kind in kinds for part in (nn.Linear(NEURONS, NEURONS), kind())]
    return [*layers, head()]


# Tails users have, in evaluation mode: the tail, and the width of the next layer.
SIMULATED: dict[str, tuple[Callable[[], nn.Module], int | None]] = {
    "no hidden layer": (lambda: net(head()), CLASSES),
    "1 hidden layer": (lambda: net(*hidden(nn.ReLU)), NEURONS),
    "2 hidden layers": (lambda: net(*hidden(nn.ReLU, nn.ReLU)), NEURONS),
    "3 hidden layers": (lambda: net(*hidden(nn.GELU, nn.Tanh, nn.ReLU)), NEURONS),
    "4 hidden layers": (lambda: net(*hidden(nn.Tanh, nn.GELU, nn.ReLU, nn.GELU)), NEURONS),
    "GELU": (lambda: net(*hidden(nn.GELU)), NEURONS),
    "Tanh": (lambda: net(*hidden(nn.Tanh)), NEURONS),
    "layer norm behind the next layer": (
        lambda: net(nn.Linear(NEURONS, 7), nn.LayerNorm(7), nn.ReLU(), head(7)),
        7,
    ),
    "layer norm before it": (lambda: net(nn.LayerNorm(NEURONS), head()), None),
    "batch norm behind the next layer": (
        lambda: net(nn.Linear(NEURONS, 7), nn.BatchNorm1d(7), nn.ReLU(), head(7)).eval(),
        7,
    ),
    "batch norm before it": (lambda: net(nn.BatchNorm1d(NEURONS), head()).eval(), None),
    "residual block at once": (lambda: net(Residual(NEURONS), head()), None),
    "residual blocks behind the next layer": (
        lambda: net(nn.Linear(NEURONS, 7), Residual(7), Residual(7), head(7)),
        7,
    ),
    "dropout in evaluation mode": (
        lambda: net(nn.Dropout(), nn.Linear(NEURONS, 7), nn.Dropout(), nn.Tanh(), head(7)).eval(),
        7,
    ),
    "dropout of nothing": (lambda: net(nn.Dropout(0.0), head()), CLASSES),
    "recurrence": (lambda: net(nn.GRUCell(NEURONS, 4), head(4)), None),
}


def gradients_by_hand(target: Target, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The target's and the next layer's gradients, from the parts and one sample at a time."""
    rows = target.front(x)
    z = target.pre_activations(rows)
    layer, found = target.tail.next_layer, {}
    sensitivities, at_next = [], []
    for activations, label in zip(z.relu(), y, strict=True):
        a = activations[None].requires_grad_()
        hidden = a if layer is None else layer(a)
        loss = functional.cross_entropy(target.tail.rest(hidden), label[None]) / len(x)
        c, v = torch.autograd.grad(loss, (a, hidden), allow_unused=True)
        sensitivities.append(c)
        at_next.append(v)
    c = torch.cat(sensitivities) * (z > 0)
    found[target.weight_name], found[target.bias_name] = c.T @ rows, c.sum(0)
    if target.tail.next_weight_name is not None:
        found[target.tail.next_weight_name] = torch.cat(at_next).T @ z.relu()
    return found


@pytest.mark.parametrize(("make", "width"), SIMULATED.values(), ids=SIMULATED)
def test_a_tail_that_can_be_simulated_gives_the_client_s_gradients(
    make: Callable[[], nn.Module], width: int | None
) -> None:
    model, (x, y) = make(), batch()
    target = split(model)
    assert target.tail.unknown is None
    layer = target.tail.next_layer
    assert (None if layer is None else layer.out_features) == width
    torch.testing.assert_close(target.logits(x), model(x))
    sent = local_update(model, x, y).gradients
    for name, gradient in gradients_by_hand(target, x, y).items():
        torch.testing.assert_close(gradient, sent[name], rtol=1e-9, atol=1e-12)
    assert exposure(model, x).grid.shape == (NEURONS, BATCH)


def mixed_by_hand(self: Any, hidden: Tensor) -> Tensor:
    return self.layers[0](hidden - hidden.mean(0))  # type: ignore[no-any-return]


def dropped_by_hand(self: Any, hidden: Tensor) -> Tensor:
    return self.layers[0](hidden) * torch.bernoulli(torch.full_like(hidden[:, :1], 0.5))  # type: ignore[no-any-return]


def skipped_now_and_then(self: Any, hidden: Tensor) -> Tensor:
    return self.layers[0](hidden) * torch.bernoulli(torch.full_like(hidden[:1, :1], 1 - 1e-9))  # type: ignore[no-any-return]


# Tails that nobody can simulate: why, and the width of the next layer.
UNKNOWN: dict[str, tuple[Callable[[], nn.Module], str, int | None]] = {
    "nothing": (net, ENDS, None),
    "nothing to speak of": (lambda: net(nn.Identity(), nn.Dropout(0.0), nn.Flatten()), ENDS, None),
    "dropout": (lambda: net(nn.Dropout(), head()), "Dropout '2' is active", None),
    "dropout at the end": (lambda: net(nn.Dropout()), "Dropout '2' is active", None),
    "dropout behind the next layer": (
        lambda: net(nn.Linear(NEURONS, 7), nn.ReLU(), nn.Dropout(), head(7)),
        "Dropout '4' is active",
        7,
    ),
    "dropout of many kinds": (
        lambda: net(nn.Linear(NEURONS, 7), nn.AlphaDropout(), nn.Dropout(0.0), nn.Dropout(0.1)),
        "AlphaDropout '3', Dropout '5' are active",
        7,
    ),
    "functional dropout": (
        lambda: Written(lambda n, h: n.layers[0](functional.dropout(h, 0.5)), head()),
        "dropout is called with training=True",
        None,
    ),
    "functional dropout behind the next layer": (
        lambda: Written(lambda n, h: functional.dropout(n.layers[0](h), training=True), head()),
        "dropout is called with training=True",
        CLASSES,
    ),
    "functional dropout of nothing": (
        lambda: Written(lambda _, h: functional.dropout(h, 0.0)),
        ENDS,
        None,
    ),
    "dropout that does not name its arguments": (
        lambda: Written(lambda n, h: n.layers[0](torch.dropout(h, 0.5, True)), head()),
        AGAIN,
        None,
    ),
    "attention with dropout": (
        lambda: net(
            nn.Linear(NEURONS, 8),
            nn.Unflatten(1, (2, 4)),
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            nn.Flatten(),
        ),
        ATTENTION,
        8,
    ),
    "batch norm": (
        lambda: net(nn.BatchNorm1d(NEURONS), head()),
        f"BatchNorm1d '2' is {MIXES}",
        None,
    ),
    "batch norm behind the next layer": (
        lambda: net(nn.Linear(NEURONS, 7), nn.BatchNorm1d(7), nn.Dropout(), nn.ReLU(), head(7)),
        f"Dropout '4' is active; BatchNorm1d '3' is {MIXES}",
        7,
    ),
    "batch norm without statistics": (
        lambda: net(head(), nn.BatchNorm1d(CLASSES, track_running_stats=False)).eval(),
        "BatchNorm1d '3' is without running statistics, so it mixes a batch",
        CLASSES,
    ),
    "functional batch norm": (
        lambda: Written(
            lambda n, h: functional.batch_norm(n.layers[0](h), None, None, training=True), head()
        ),
        "batch_norm is called with training=True",
        CLASSES,
    ),
    "a centred batch": (
        lambda: Written(mixed_by_hand, head()),
        "the tail mixes the samples of a batch",
        None,
    ),
    "randomised ReLU": (
        lambda: net(nn.Linear(NEURONS, 7), nn.RReLU(), head(7)),
        AGAIN,
        7,
    ),
    "skipped once in a blue moon": (
        lambda: Written(skipped_now_and_then, head()),
        AGAIN,
        None,
    ),
    "dropped by hand": (
        lambda: Written(dropped_by_hand, head()),
        AGAIN,
        None,
    ),
}


@pytest.mark.parametrize(("make", "why", "width"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_tail_that_nobody_can_simulate_says_why(
    make: Callable[[], nn.Module], why: str, width: int | None
) -> None:
    model = settled(make())
    target = split(model)
    assert target.tail.unknown == why
    assert target.to(torch.float32).tail.unknown == why
    layer = target.tail.next_layer
    assert (None if layer is None else layer.out_features) == width


@pytest.mark.parametrize(("make", "_", "__"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_tail_is_the_model_s_own(
    make: Callable[[], nn.Module], _: object, __: object
) -> None:
    model, (x, _y) = settled(make()), batch()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    target = split(model)
    # Nothing was drawn, and nothing was counted, neither here nor there.
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(3)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    counted = {name: value for name, value in before.items() if name.endswith("running_mean")}
    kept = [value for name, value in target.tail.named_buffers() if name.endswith("running_mean")]
    assert all(map(torch.equal, kept, counted.values()))
    assert len(kept) == len(counted)
    torch.manual_seed(4)
    expected = model(x)
    torch.manual_seed(4)
    torch.testing.assert_close(target.logits(x), expected)


@pytest.mark.parametrize(("make", "_", "__"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_peeling_rests_on_holds_behind_any_tail(
    make: Callable[[], nn.Module], _: object, __: object
) -> None:
    """Gradients are sums over the samples that fire; the next layer's, over the activations."""
    model, (x, y) = settled(make()), batch()
    target = split(model)
    grid = exposure(model, x).grid
    assert torch.equal(grid, exposure(copy.deepcopy(model).eval(), x).grid)
    sent = local_update(model, x, y, seed=2).gradients
    z = target.pre_activations(target.front(x))
    activations = z.relu().requires_grad_()
    torch.manual_seed(2)
    layer = target.tail.next_layer
    hidden = activations if layer is None else layer(activations)
    loss = functional.cross_entropy(target.tail.rest(hidden), y)
    c, v = torch.autograd.grad(loss, (activations, hidden))
    c = c * grid.T
    torch.testing.assert_close(c.T @ x, sent[target.weight_name])
    torch.testing.assert_close(c.sum(0), sent[target.bias_name])
    if layer is not None and target.tail.next_weight_name is not None:
        torch.testing.assert_close(v.T @ activations, sent[target.tail.next_weight_name])
        torch.testing.assert_close((v @ layer.weight) * grid.T, c)


def test_a_tail_without_forward_derivative_is_unknown() -> None:
    def recurrent(self: Any, hidden: Tensor) -> Tensor:
        states: Tensor = self.layers[0](hidden.unsqueeze(1))[0]
        return states.squeeze(1)

    tail = split(Written(recurrent, nn.LSTM(NEURONS, 4, batch_first=True))).tail
    assert tail.unknown is not None
    assert tail.unknown.startswith("the tail has no forward derivative (")


@settings(max_examples=25)
@given(
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    kinds=st.lists(
        st.sampled_from(["dropout", "batch norm", "layer norm", "residual", "nothing"]),
        min_size=4,
        max_size=4,
    ),
    training=st.booleans(),
)
def test_unknown_in_training_what_is_known_in_evaluation(
    widths: list[int], kinds: list[str], training: bool
) -> None:
    parts: list[nn.Module] = []
    made: dict[str, Callable[[int], nn.Module]] = {
        "dropout": lambda _: nn.Dropout(0.5),
        "batch norm": nn.BatchNorm1d,
        "layer norm": nn.LayerNorm,
        "residual": Residual,
        "nothing": lambda _: nn.Identity(),
    }
    for (fan_in, fan_out), kind in zip(
        itertools.pairwise([NEURONS, *widths, CLASSES]), kinds, strict=False
    ):
        parts += [nn.Linear(fan_in, fan_out), made[kind](fan_out), nn.ReLU()]
    model = net(*parts).train(training)
    used = set(kinds[: len(widths) + 1])
    target, (x, _) = split(model), batch()
    assert (target.tail.unknown is not None) == (
        training and bool({"dropout", "batch norm"} & used)
    )
    assert target.tail.next_weight_name == "2.weight"
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    torch.testing.assert_close(target.logits(x), expected)
