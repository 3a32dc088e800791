"""Labels by counting: how many copies of a sample with which labels add up to its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gradpeel.decoder.backward import Backward
from gradpeel.decoder.labelling import MOST_COPIES, labels_of, tally
from gradpeel.losses import CrossEntropy
from support import make_batch, make_model, make_round, round_of
from truth import Truth

LOSSES = {
    "plain": CrossEntropy(),
    "smoothed": CrossEntropy(label_smoothing=0.2),
    "weighted": CrossEntropy(class_weights=(1.0, 0.7, 3.1, 1.3)),
    "both": CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 0.7, 3.1, 1.3)),
}


def stage(
    *, deep: bool = False, seed: int = 0, scale: float = 1.0, classes: int = 4
) -> tuple[Backward, Tensor]:
    """A backward pass, and the activations of some samples."""
    model = make_model(24, 80, classes, seed=seed)
    if deep:
        torch.manual_seed(seed)
        tail = [nn.Linear(80, 20), nn.Tanh(), nn.Linear(20, classes)]
        model = nn.Sequential(model[0], model[1], *tail).double()
    with torch.no_grad():
        model[-1].get_parameter("weight").mul_(scale)
    x, y = make_batch(24, 8, classes, seed=seed)
    round_ = round_of(model, x, y)
    truth = Truth.of(round_)
    return truth.backward(round_), truth.z.relu()


COUNTS = st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(
    lambda counts: 1 <= sum(counts) <= MOST_COPIES
)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("deep", [False, True], ids=["one layer", "deep"])
@settings(max_examples=12)
@given(counts=st.lists(COUNTS, min_size=8, max_size=8), seed=st.integers(0, 100))
def test_copies_are_counted(loss: str, counts: list[list[int]], seed: int, *, deep: bool) -> None:
    backward, activations = stage(deep=deep, seed=seed)
    backward = replace(backward, loss=LOSSES[loss])
    given_ = torch.tensor(counts).double()
    if LOSSES[loss].class_weights is not None:  # of labels of different weight, see below
        given_ = torch.diag(given_.sum(1))[:, :4] + torch.diag(given_.sum(1))[:, 4:]
    v = backward.simulate(activations, given_).v
    exact = torch.full((8,), 1e-12).double()
    assert torch.equal(tally(backward, activations, v, exact), given_)
    # Inexact gradients will do as well, as long as they tell.
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(v.shape, generator=generator, dtype=torch.float64)
    blurred = v + 1e-6 * v.abs().amax(1, keepdim=True) * noise
    inexact = torch.full((8,), 1e-6).double()
    assert torch.equal(tally(backward, activations, blurred, inexact), given_)


@pytest.mark.parametrize("loss", ["weighted", "both"])
def test_copies_with_labels_of_different_weight_are_counted(loss: str) -> None:
    backward, activations = stage()
    backward = replace(backward, loss=LOSSES[loss])
    counts = torch.tensor([[1.0, 1, 0, 0], [0, 1, 0, 3], [2, 0, 1, 0], [1, 1, 1, 1]]).double()
    v = backward.simulate(activations[:4], counts).v
    exact = torch.full((4,), 1e-12).double()
    assert torch.equal(tally(backward, activations[:4], v, exact), counts)


class Operations(TorchFunctionMode):
    """Counts what is asked of PyTorch inside a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_many_classes_of_different_weight_take_no_more_steps_than_a_few() -> None:
    exact = torch.full((8,), 1e-12).double()
    counted: list[int] = []
    for classes in (4, 200):
        backward, activations = stage(classes=classes)
        weights = torch.linspace(0.5, 2.0, classes).tolist()
        backward = replace(backward, loss=CrossEntropy(class_weights=tuple(weights)))
        # One label, two and three, in the batch up to 8 times.
        counts = torch.zeros(8, classes).double()
        for sample in range(8):
            counts[sample, : 1 + sample % 3] = 1.0
        counts[:, 1] += torch.arange(8) // 2 * 2
        v = backward.simulate(activations, counts).v
        with Operations() as operations:
            found = tally(backward, activations, v, exact)
        assert torch.equal(found, counts)
        counted.append(operations.count)
    assert counted[0] == counted[1]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_no_sum_of_copies_has_no_labels(seed: int) -> None:
    backward, activations = stage(seed=seed)
    one = backward.simulate(activations, torch.eye(4).double().repeat(2, 1)).v
    exact = torch.full((8,), 1e-12).double()
    generator = torch.Generator().manual_seed(seed)
    for wrong in (
        0.5 * one,
        0.7 * one + 0.3 * one.roll(1, 0),
        torch.randn(one.shape, generator=generator, dtype=torch.float64) * one.abs().mean(),
        -one,
    ):
        assert not bool(tally(backward, activations, wrong, exact).any())


def test_what_is_too_inexact_has_no_labels() -> None:
    backward, activations = stage()
    v = backward.simulate(activations, torch.eye(4).double().repeat(2, 1)).v
    for error, known in ((1e-6, True), (1.0, False)):
        vague = torch.full((8,), error).double()
        assert bool(tally(backward, activations, v, vague).any(1).all()) == known


def test_copies_that_leave_no_trace_are_not_counted() -> None:
    # The network is certain of a label: copies that have it have no gradient.
    backward, activations = stage(scale=10_000.0)
    sure = backward.tail(activations).argmax(1)
    counts = torch.zeros(8, 4).double()
    counts[torch.arange(8), (sure + 1) % 4] = 2.0
    exact = torch.full((8,), 1e-12).double()
    alone = backward.simulate(activations, counts).v
    assert torch.equal(tally(backward, activations, alone, exact), counts)
    hidden = counts.clone()
    hidden[torch.arange(8), sure] = 3.0
    v = backward.simulate(activations, hidden).v
    torch.testing.assert_close(v, alone, rtol=1e-6, atol=1e-9)
    assert torch.equal(tally(backward, activations, v, exact), counts)


@pytest.mark.parametrize(
    ("counts", "labels"),
    [
        ([[0, 1, 0], [2, 0, 0], [1, 2, 1], [0, 0, 0]], [1, 0, 1, -1]),
        ([[1, 1, 0], [0, 3, 3]], [0, 1]),
    ],
)
def test_the_label_is_the_most_frequent_one(counts: list[list[int]], labels: list[int]) -> None:
    assert labels_of(torch.tensor(counts).double()).tolist() == labels


def test_no_classes_no_labels() -> None:
    assert labels_of(torch.zeros(3, 0).double()).tolist() == [-1, -1, -1]
    assert labels_of(torch.zeros(0, 4).double()).tolist() == []


def test_nobody_to_count() -> None:
    round_ = make_round()
    truth = Truth.of(round_)
    nobody = truth.z[:0]
    assert tally(truth.backward(round_), nobody, truth.v[:0], nobody[:, 0]).shape == (0, 4)
