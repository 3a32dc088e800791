"""Fronts that move or mix values: samples come back in input space where nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.errors import InputError
from gradpeel.target import split
from gradpeel.target.front_maps import Mixing, rearranging

IMAGE = (3, 4, 4)
ORDER = torch.randperm(48, generator=torch.Generator().manual_seed(1)).tolist()


class Turned(nn.Module):
    """A head behind a function of the image."""

    def __init__(self, turn: Callable[[Tensor], Tensor], features: int = 48) -> None:
        super().__init__()
        self.turn, self.head = turn, nn.Sequential(*head(features))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.turn(x).flatten(1))


def head(features: int) -> list[nn.Module]:
    return [nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 5)]


def behind(*front: nn.Module, features: int = 48) -> nn.Module:
    return nn.Sequential(*front, *head(features)).eval()


def whitening() -> nn.Linear:
    """A fixed map that is its own transpose, as ZCA is."""
    layer = nn.Linear(48, 48, bias=False).requires_grad_(requires_grad=False)
    mixed = torch.randn(48, 48)
    layer.weight.copy_(mixed @ mixed.T / 48 + torch.eye(48))
    return layer


# Fronts that lose nothing.
UNDONE: dict[str, Callable[[], nn.Module]] = {
    "pixels to channels": lambda: behind(nn.PixelUnshuffle(2), nn.Flatten()),
    "and back": lambda: behind(nn.PixelUnshuffle(4), nn.PixelShuffle(2), nn.Flatten()),
    "channels shuffled": lambda: behind(nn.ChannelShuffle(3), nn.Flatten()),
    "channels last": lambda: Turned(lambda x: x.permute(0, 2, 3, 1)),
    "moved": lambda: Turned(lambda x: torch.movedim(x, 1, 3)),
    "transposed": lambda: Turned(lambda x: x.transpose(2, 3)),
    "flipped": lambda: Turned(lambda x: x.flip(3)),
    "features in another order": lambda: Turned(lambda x: x.flatten(1)[:, ORDER]),
    "selected in another order": lambda: Turned(
        lambda x: x.flatten(1).index_select(1, torch.tensor(ORDER))
    ),
    "a convolution as large as the image": lambda: behind(
        nn.Conv2d(3, 60, 4), nn.Flatten(), features=60
    ),
    "a convolution of pixels": lambda: behind(nn.Conv2d(3, 6, 1), nn.Flatten(), features=96),
    "whitened": lambda: behind(nn.Flatten(), whitening()),
    "a wider Linear": lambda: behind(nn.Flatten(), nn.Linear(48, 70), features=70),
    "one after the other": lambda: behind(
        gp.Normalise([0.4, 0.5, 0.6], 0.25),
        nn.Conv2d(3, 6, 1),
        nn.PixelUnshuffle(2),
        nn.Flatten(),
        nn.BatchNorm1d(96),
        nn.Linear(96, 130),
        features=130,
    ),
}
# Fronts that lose something, or may.
LOST: dict[str, Callable[[], nn.Module]] = {
    "a narrower Linear": lambda: behind(nn.Flatten(), nn.Linear(48, 47), features=47),
    "fewer channels": lambda: behind(nn.Conv2d(3, 40, 4), nn.Flatten(), features=40),
    "a convolution that overlaps": lambda: behind(nn.Conv2d(3, 30, 3), nn.Flatten(), features=120),
    "patches, which may leave a border": lambda: behind(
        nn.Conv2d(3, 12, 2, 2), nn.Flatten(), features=48
    ),
    "padded": lambda: behind(nn.Conv2d(3, 60, 4, padding=2), nn.Flatten(), features=60 * 25),
    "equal columns": lambda: behind(nn.Flatten(), constant(48), features=60),
    "the batch moved": lambda: Turned(lambda x: x.permute(1, 0, 2, 3), 48),
    "some features only": lambda: Turned(lambda x: x.flatten(1)[:, [5, 0, 1]], 3),
    "the first features": lambda: Turned(lambda x: x.flatten(1)[:, [0, 1, 2]], 3),
    "a feature twice": lambda: Turned(lambda x: x.flatten(1)[:, [1, 0, 1]], 3),
    "an activation between": lambda: behind(
        nn.Flatten(), nn.Linear(48, 60), nn.Tanh(), features=60
    ),
}


def constant(inputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, 60)
    nn.init.constant_(layer.weight, 0.1)
    return layer


def images(size: int) -> Tensor:
    return torch.rand(size, *IMAGE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", UNDONE.values(), ids=UNDONE)
def test_what_is_read_comes_back_as_samples(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = make(), images(5)
    target = split(model.double()).front
    assert target.space == "input"
    rows = target(x.double())
    torch.testing.assert_close(target.invert(rows, IMAGE), x.double())
    assert target.invert(rows[:0], IMAGE).shape == (0, *IMAGE)
    found = gp.audit(model.float(), x, torch.arange(5))
    assert (found.score.recovered, found.score.false_certificates) == (5, 0)
    assert found.recovery.samples.shape == x.shape
    assert found.score.error_estimates_hold == 1.0
    assert found.membership.count("in") == 5


@pytest.mark.parametrize("make", LOST.values(), ids=LOST)
def test_what_loses_something_gives_features(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert split(make()).front.space == "features"


def test_a_map_needs_half_the_digits() -> None:
    scales = torch.logspace(0, -4, 8)
    with pytest.raises(InputError, match="without full rank, or nearly so"):
        Mixing(torch.diag(scales), torch.zeros(8))
    exact = Mixing(torch.diag(scales.double()), torch.zeros(8))
    assert exact.condition == pytest.approx(1e4)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (None, "sample_shape=None: expected the shape of one sample, since the front moves its"),
        ((48,), "sample_shape=(48,): the front does not take it ("),
        (
            (12, 4, 4),
            "sample_shape=(12, 4, 4): such a sample enters the target as (192,): expected",
        ),
        ((3, -4, 4), "sample_shape=(3, -4, 4): expected a tuple of positive integers"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(shape: Any, message: str) -> None:
    front = split(UNDONE["pixels to channels"]()).front
    with pytest.raises(InputError) as caught:
        front.invert(torch.zeros(2, 48), shape)
    assert str(caught.value).startswith(message)


def test_flat_samples_need_no_shape_behind_a_linear() -> None:
    front = split(nn.Sequential(nn.Linear(48, 60), *head(60)).double()).front
    x = images(3).flatten(1).double()
    torch.testing.assert_close(front.invert(front(x)), x)


@pytest.mark.parametrize("layer", [nn.PixelUnshuffle(2), nn.PixelShuffle(2), nn.ChannelShuffle(2)])
def test_permutations_are_those_of_torch(layer: nn.Module) -> None:
    x = torch.rand(2, 8, 4, 6)
    moved = rearranging(layer)
    assert moved is not None
    assert torch.equal(moved.apply(x), layer(x))
    assert torch.equal(moved.undo(layer(x)), x)
