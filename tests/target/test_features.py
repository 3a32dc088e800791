"""Fronts that cannot be undone: what they are called, and what enters the target behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradpeel.errors import InputError, ModelRefusedError
from gradpeel.target import FeatureFront, Target, split, watch_layer
from gradpeel.target.front import Normalise


class Written(nn.Module):
    """A network of two layers, `one` and `two`, written as a function of them."""

    def __init__(self, written: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.written = written
        for name, layer in {"one": dense(), "two": nn.Linear(8, 4), **layers}.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.written(self, x)


class Branching(nn.Module):
    """A part that torch.fx cannot trace."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 1e9 else 2 * x


class Noisy(nn.Module):
    """A part that draws random numbers without asking for the mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(12)


class Normalize(nn.Module):
    """Another thing of the name that torchvision's has."""

    mean = std = None

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x)


def dense(features: int = 12, neurons: int = 8) -> nn.Linear:
    return nn.Linear(features, neurons)


def head() -> list[nn.Module]:
    return [dense(), nn.ReLU(), nn.Linear(8, 4)]


def dead_norm() -> nn.Module:
    norm = nn.BatchNorm1d(12).eval()
    nn.init.zeros_(norm.weight)
    return nn.Sequential(norm, *head())


MIXES = "is in training mode, where it mixes the samples of a batch"

# Every network with its target, what cannot be undone, and what changes from run to run.
FRONTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, str, str | None]] = {
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 12, 2), nn.ReLU(), nn.Flatten(), *head()),
        (3, 2, 2),
        "3",
        "Conv2d '0', ReLU '1'",
        None,
    ),
    "a deep front": (
        lambda: nn.Sequential(*[nn.LayerNorm(12) for _ in range(7)], *head()),
        (12,),
        "7",
        "LayerNorm '0', LayerNorm '1', LayerNorm '2', LayerNorm '3' and 3 more",
        None,
    ),
    "another Linear": (
        lambda: nn.Sequential(dense(), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)),
        (12,),
        "2",
        "Linear '0', GELU '1'",
        None,
    ),
    "a Linear without a gradient": (
        lambda: nn.Sequential(
            dense(12, 12).requires_grad_(requires_grad=False), nn.ReLU(), *head()
        ),
        (12,),
        "2",
        "Linear '0', ReLU '1'",
        None,
    ),
    "a block with a skip connection": (
        lambda: Written(
            lambda n, x: n.two(n.one(x + n.back(n.up(x).relu())).relu()),
            up=dense(12, 30),
            back=dense(30, 12),
        ),
        (12,),
        "one",
        "add",
        None,
    ),
    "normalised by the sample itself": (
        lambda: Written(lambda n, x: n.two(n.one(x - x.mean(1, keepdim=True)).relu())),
        (12,),
        "one",
        "sub",
        None,
    ),
    "divided by the sample": (
        lambda: Written(lambda n, x: n.two(n.one(1 / (1 + x)).relu())),
        (12,),
        "one",
        "truediv",
        None,
    ),
    "another Normalize": (
        lambda: nn.Sequential(Normalize(), *head()),
        (12,),
        "1",
        "normalize",
        None,
    ),
    "a feature erased": (dead_norm, (12,), "1", "BatchNorm1d '0'", None),
    "active dropout": (
        lambda: nn.Sequential(nn.Dropout(), nn.Dropout(0.0), *head()),
        (12,),
        "2",
        "Dropout '0' is active",
        "Dropout '0' is active",
    ),
    "active functional dropout": (
        lambda: Written(lambda n, x: n.two(n.one(functional.dropout(x)).relu())),
        (12,),
        "one",
        "dropout is called with training=True",
        "dropout is called with training=True",
    ),
    "dropout that does not name its arguments": (
        lambda: Written(lambda n, x: n.two(n.one(torch.dropout(x, 0.5, True)).relu())),
        (12,),
        "one",
        "dropout",
        None,
    ),
    "batch norm in training": (
        lambda: nn.Sequential(nn.BatchNorm1d(12), *head()),
        (12,),
        "1",
        f"BatchNorm1d '0' {MIXES}",
        f"BatchNorm1d '0' {MIXES}",
    ),
    "batch norm without statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(12, track_running_stats=False), *head()).eval(),
        (12,),
        "1",
        "BatchNorm1d '0' is without running statistics, so it mixes a batch",
        "BatchNorm1d '0' is without running statistics, so it mixes a batch",
    ),
    "dropout between another Linear and its ReLU": (
        lambda: nn.Sequential(
            dense(), nn.Dropout(), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)
        ),
        (12,),
        "3",
        "Linear '0', ReLU '2'",
        "Dropout '1' is active",
    ),
    "attention": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 4)),
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            nn.Flatten(),
            *head(),
        ).eval(),
        (12,),
        "3",
        "Unflatten '0', add, LayerNorm '1.norm1', add and 1 more",
        None,
    ),
    "a part that branches on values": (
        lambda: nn.Sequential(Branching(), *head()),
        (12,),
        "1",
        "Branching '0'",
        None,
    ),
    "a part that draws random numbers": (
        lambda: nn.Sequential(Noisy(), *head()),
        (12,),
        "1",
        "Noisy '0'",
        None,
    ),
}


def front_of(target: Target) -> FeatureFront:
    assert isinstance(target.front, FeatureFront)
    return target.front


@pytest.mark.parametrize(
    ("make", "shape", "layer", "obstacle", "unsteady"), FRONTS.values(), ids=FRONTS
)
def test_features_are_what_enters_the_target(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    layer: str,
    obstacle: str,
    unsteady: str | None,
) -> None:
    model = make().double()
    target, x = split(model), torch.rand(5, *shape).double()
    front = front_of(target)
    assert (target.layer, front.obstacle, front.unsteady) == (layer, obstacle, unsteady)
    assert front.space == "features"
    torch.manual_seed(1)
    start = torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = target.rows(x)
    assert torch.equal(torch.get_rng_state(), start)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.manual_seed(1)
    with watch_layer(model, layer) as entered, torch.no_grad():
        outputs = model(x)
    assert torch.equal(rows, entered.take(layer, batch=5, features=target.features))
    torch.testing.assert_close(target.tail(target.pre_activations(rows).relu()), outputs)
    # They come back as they are, and have no other shape.
    assert torch.equal(front.invert(rows), rows)
    assert front.to(torch.float32)(x).dtype == torch.float32
    with pytest.raises(InputError, match=f"features that enter layer '{layer}', flat rows"):
        front.invert(rows, shape)
    with pytest.raises(InputError, match=r"rows of shape \(5, 1\): expected \(n, "):
        front.invert(rows[:, :1])


def test_what_can_be_undone_comes_back_in_input_space() -> None:
    model = nn.Sequential(Normalise(0.5, 2.0), nn.Flatten(), nn.Dropout(), *head()).eval()
    assert (split(model).front.space, split(model).layer) == ("input", "3")
    assert split(model.train()).front.space == "features"


def test_the_front_knows_which_of_its_parameters_are_trained() -> None:
    model = nn.Sequential(nn.Conv2d(3, 12, 2), nn.BatchNorm2d(12), nn.Flatten(), *head()).eval()
    model.get_parameter("1.weight").requires_grad = False
    assert split(model).front.trained == ("0.weight", "0.bias", "1.bias")
    assert split(model.requires_grad_(requires_grad=True)[1:]).front.trained == (
        "1.weight",
        "1.bias",
    )


def test_the_mode_of_the_model_is_that_of_its_front() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Tanh(), *head())
    x = torch.rand(4, 12)
    front = split(model).front
    assert not torch.equal(front(x), x.tanh())
    assert torch.equal(split(model.eval()).front(x), x.tanh())
    assert not torch.equal(front(x), x.tanh())  # a copy of its own


def test_a_layer_can_be_chosen() -> None:
    model = nn.Sequential(dense(), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    assert split(model).layer == "0"
    target = split(model, layer="2")
    assert (target.layer, target.features, target.neurons) == ("2", 8, 6)
    assert target.tail.next_weight_name == "4.weight"
    assert front_of(target).obstacle == "Linear '0', ReLU '1'"
    x = torch.rand(3, 12)
    torch.testing.assert_close(target.rows(x), model[:2](x))


def test_a_chosen_layer_is_refused_for_reasons_of_its_own() -> None:
    model = nn.Sequential(*head())
    with pytest.raises(ModelRefusedError, match=r"Linear '2' is followed by the output, not by"):
        split(model, layer="2")
    hidden = nn.Sequential(
        nn.Unflatten(1, (3, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, activation="gelu"),
        nn.Flatten(),
        *head(),
    )
    with pytest.raises(ModelRefusedError, match=r"Linear '1\.linear1' is followed by gelu"):
        split(hidden, layer="1.linear1")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("7", "layer='7': expected the name of a Linear: '0', '2'"),
        ("1", "layer='1' is a ReLU: expected the name of a Linear: '0', '2'"),
        (0, "layer=0: expected the name of a Linear: '0', '2'"),
        ("", "layer='' is a Sequential: expected the name of a Linear: '0', '2'"),
    ],
)
def test_only_a_linear_can_be_chosen(layer: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        split(nn.Sequential(*head()), layer=layer)
    assert str(caught.value) == message
    with pytest.raises(InputError, match=r"layer='0' is a ReLU: the model has no Linear$"):
        split(nn.Sequential(nn.ReLU()), layer="0")


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (
            nn.Sequential(nn.Unflatten(1, (2, 12)), nn.Tanh(), *head()),
            torch.rand(5, 24),
            "5 samples enter layer '2' as (5, 2, 12): expected one row per sample, (5, 12)",
        ),
        (
            Written(lambda n, x: n.two(n.one(x.view(4, 12).exp()).relu())),
            torch.rand(2, 24),
            "2 samples enter layer 'one' as (4, 12): expected one row per sample, (2, 12)",
        ),
        (
            nn.Sequential(nn.Conv2d(3, 12, 2), nn.Flatten(), *head()),
            torch.rand(5, 4, 2, 2),
            "x of shape (5, 4, 2, 2): the model does not take it (",
        ),
    ],
    ids=["tokens", "samples laid out across one another", "another shape"],
)
def test_every_sample_must_enter_as_one_row(model: nn.Module, x: Tensor, message: str) -> None:
    with pytest.raises(InputError) as caught:
        split(model).rows(x)
    assert str(caught.value).startswith(message)


class Unseen(nn.Module):
    """A network that branches on values: torch.fx sees nothing of it."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.conv, self.drop = nn.Conv2d(1, 4, 3), nn.Dropout()
        self.one, self.activation, self.two = dense(16, 60), activation, nn.Linear(60, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() < 0:
            x = -x
        logits: Tensor = self.two(self.activation(self.one(self.conv(x).relu().flatten(1))))
        return logits


def test_a_network_that_cannot_be_traced_is_read_at_a_named_layer() -> None:
    torch.manual_seed(0)
    model, x = Unseen(nn.ReLU(inplace=True)).eval(), torch.rand(5, 1, 4, 4)
    with pytest.raises(ModelRefusedError, match=r"name the layer to read \(.*\), and it is read"):
        split(model)
    target = split(model, layer="one")
    assert target.tail.unknown is not None
    assert target.tail.unknown.startswith("the model cannot be traced: ")
    front = front_of(target)
    assert (front.space, front.unsteady) == ("features", None)
    assert front.trained == ("conv.weight", "conv.bias", "two.weight", "two.bias")
    with torch.no_grad():
        torch.testing.assert_close(target.rows(x), model.conv(x).relu().flatten(1))
    target.check_on(x)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert front_of(split(model.train(), layer="one")).unsteady == "Dropout 'drop' is active"


def test_a_layer_that_relu_does_not_follow_is_noticed_on_a_batch() -> None:
    x = torch.rand(5, 1, 4, 4)
    for activation in (nn.GELU(), nn.LeakyReLU(), nn.Identity()):
        with pytest.raises(ModelRefusedError, match=r"Linear 'one' is not followed by ReLU alone"):
            split(Unseen(activation), layer="one").check_on(x)


def test_a_named_layer_of_such_a_network_may_have_faults_of_its_own() -> None:
    model = Unseen(nn.ReLU())
    model.one.requires_grad_(requires_grad=False)
    model.two = nn.Linear(60, 4, bias=False)
    with pytest.raises(ModelRefusedError, match=r"'one\.weight' has requires_grad=False"):
        split(model, layer="one")
    with pytest.raises(ModelRefusedError, match=r"Linear 'two' has no bias"):
        split(model, layer="two")

    class ByHand(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return functional.linear(input, self.weight.abs(), self.bias)

    model.one = ByHand(16, 60)
    with pytest.raises(ModelRefusedError, match=r"'one' is not torch's own Linear"):
        split(model, layer="one")
    shared = Unseen(nn.ReLU())
    shared.again = dense(16, 60)
    shared.again.weight = shared.one.weight
    with pytest.raises(ModelRefusedError, match=r"Linear 'one' may share parameters with other"):
        split(shared, layer="one")
