"""The front: every step undone exactly, in any shape it can meet."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.target.front import Affine, Flatten, Front, Normalise, normalising

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def values(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def front_of(*steps: Affine | Flatten, features: int) -> Front:
    return Front(steps, features, torch.float64)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.integers(0, 5), st.integers(0, 99), st.booleans(), st.booleans())
def test_inverting_undoes_the_front(
    shape: tuple[int, ...], batch: int, seed: int, per_channel: bool, after: bool
) -> None:
    features = math.prod(shape)
    channels = (shape[0],) if per_channel else ()
    before = Affine(values(*channels), values(*channels).abs() + 0.5, channelwise=True)
    steps: list[Affine | Flatten] = [before, Flatten()]
    if after:
        steps += [Affine(values(features), values(features).abs() + 0.5), Flatten()]
    front = front_of(*steps, features=features)
    x = values(batch, *shape, seed=seed)
    rows = front(x)
    assert rows.shape == (batch, features)
    torch.testing.assert_close(front.invert(rows, shape), x, rtol=1e-12, atol=1e-12)


def test_steps_run_in_order_and_come_back_in_reverse() -> None:
    front = front_of(normalising(1.0, 2.0), normalising(3.0, 5.0), features=2)
    x = torch.tensor([[7.0, 11.0]], dtype=torch.float64)
    assert front(x).tolist() == [[0.0, 0.4]]
    assert front.invert(front(x)).tolist() == x.tolist()


def test_per_channel_parameters_follow_their_channel_through_flattening() -> None:
    front = front_of(normalising([0.0, 10.0], [1.0, 2.0]), Flatten(), features=4)
    x = torch.tensor([[[1.0, 2.0], [12.0, 14.0]]])
    assert front(x).tolist() == [[1.0, 2.0, 1.0, 2.0]]
    assert front.invert(front(x), (2, 2)).tolist() == x.tolist()


def test_a_constant_without_channels_is_broadcast_from_the_right() -> None:
    front = front_of(Affine(torch.tensor([0.0, 1.0]), torch.ones(())), Flatten(), features=4)
    assert front(torch.zeros(1, 2, 2)).tolist() == [[0.0, -1.0, 0.0, -1.0]]


def test_without_a_sample_shape_samples_come_back_as_rows() -> None:
    front = front_of(normalising([0.5], [0.5]), Flatten(), features=4)
    x = values(3, 1, 2, 2)
    torch.testing.assert_close(front.invert(front(x)), x.flatten(1))
    late = front_of(Flatten(), normalising([0.0, 1.0], [1.0, 2.0]), features=2)
    torch.testing.assert_close(late.invert(late(values(3, 2, 1))), values(3, 2, 1).flatten(1))


def test_the_front_computes_in_the_dtype_asked_for() -> None:
    front = front_of(normalising(0.1, 0.3), Flatten(), features=2)
    x = torch.tensor([[0.1, 0.7]], dtype=torch.float32)
    assert front(x).dtype == torch.float64
    assert front.to(torch.float32)(x).dtype == torch.float32
    assert front.to(torch.float32).to(torch.float64)(x).tolist() == front(x).tolist()
    assert front(torch.tensor([[0, 255]], dtype=torch.uint8))[0, 1].item() == (255 - 0.1) / 0.3


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 2), (5, 3, 2, 2)])
def test_normalise_equals_the_formula_and_is_not_trained(shape: tuple[int, ...]) -> None:
    module = Normalise([0.1, 0.2, 0.3], [0.5, 1.0, 2.0])
    x = torch.rand(shape)
    expected = (x.movedim(1, -1) - module.mean) / module.std
    torch.testing.assert_close(module(x), expected.movedim(-1, 1))
    assert list(module.parameters()) == []
    assert set(module.state_dict()) == {"mean", "std"}


def test_normalise_takes_whole_numbers_for_pixels() -> None:
    x = torch.tensor([[0, 255]], dtype=torch.uint8)
    assert Normalise(0.0, 255.0)(x).tolist() == [[0.0, 1.0]]
    assert nn.Sequential(Normalise(0.0, 255.0)).double()(x).dtype == torch.float64


PER_CHANNEL = front_of(normalising([0.0, 1.0, 2.0], 1.0), Flatten(), features=12)
ROWS = front_of(normalising(0.0, 1.0), features=12)

MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: PER_CHANNEL(torch.zeros(12)), "x of shape (12,): expected (batch, *sample_shape)"),
    (
        lambda: PER_CHANNEL(torch.zeros(2, 3, 5)),
        "x of shape (2, 3, 5) enters the target as (2, 15): expected (batch, 12)",
    ),
    (
        lambda: PER_CHANNEL(torch.zeros(2, 4, 3)),
        (
            "samples of shape (4, 3): the front normalises with parameters of shape (3,), "
            "which do not fit"
        ),
    ),
    (
        lambda: ROWS(torch.zeros(2, 3, 12)),
        "x of shape (2, 3, 12) enters the target as (2, 3, 12): expected (batch, 12)",
    ),
    (
        lambda: front_of(Affine(torch.zeros(2, 3), torch.ones(())), features=3)(torch.zeros(2, 3)),
        (
            "samples of shape (3,): the front normalises with parameters of shape (2, 3), "
            "which do not fit"
        ),
    ),
    (
        lambda: front_of(Affine(torch.zeros(1, 1, 3), torch.ones(())), features=3)(
            torch.zeros(2, 3)
        ),
        (
            "samples of shape (3,): the front normalises with parameters of shape (1, 1, 3), "
            "which do not fit"
        ),
    ),
    (
        lambda: PER_CHANNEL.invert(torch.zeros(2, 11)),
        "rows of shape (2, 11): expected (n, 12)",
    ),
    (
        lambda: PER_CHANNEL.invert(torch.zeros(2, 12)),
        (
            "sample_shape=None: expected the shape of one sample, since the front normalises per "
            "channel or feature before it flattens"
        ),
    ),
    (
        lambda: PER_CHANNEL.invert(torch.zeros(2, 12), (3, 5)),
        "sample_shape=(3, 5) holds 15 values: expected 12, as many as the target has features",
    ),
    (
        lambda: ROWS.invert(torch.zeros(2, 12), (3, 4)),
        "sample_shape=(3, 4): expected (12,), since the front does not flatten",
    ),
    (lambda: Normalise(0.0, [1.0, 0.0]), "std=[1.0, 0.0]: expected positive values"),
    (lambda: Normalise(0.0, math.inf), "std=inf: expected finite values"),
    (lambda: Normalise("0", 1.0), "mean of type str: expected a tensor of numbers"),  # type: ignore[arg-type]
    (lambda: Normalise(0.0, None), "std of type NoneType: expected a tensor of numbers"),  # type: ignore[arg-type]
    (
        lambda: Normalise([], 1.0),
        "mean of shape (0,): expected a number or one value per channel or feature",
    ),
    (lambda: Normalise(math.nan, 1.0), "mean=nan: expected finite values"),
    (
        lambda: Normalise([0.0, 1.0], [1.0, 1.0, 1.0]),
        "mean of 2 values, std of 3: expected as many of both",
    ),
    (
        lambda: Normalise(torch.zeros(3, 1, 1), 1.0),
        "mean of shape (3, 1, 1): expected a number or one value per channel or feature",
    ),
    (
        lambda: Affine(torch.zeros(2), torch.zeros(2)),
        "scale holds zero or values that are not finite: it cannot be undone",
    ),
    (
        lambda: Affine(torch.full((1,), math.inf), torch.ones(1)),
        "offset holds values that are not finite: it cannot be undone",
    ),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_told_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
