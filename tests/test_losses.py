"""Losses against PyTorch's own, and the cross-entropy's gradient against automatic ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from gradpeel.errors import InputError
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError


@st.composite
def labelled(draw: st.DrawFn) -> tuple[CrossEntropy, Tensor, Tensor]:
    """A cross-entropy with any settings, logits and labels that fit it."""
    classes, batch = draw(st.integers(1, 12)), draw(st.integers(1, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    weights = draw(
        st.none() | st.lists(st.floats(0.01, 100), min_size=classes, max_size=classes).map(tuple)
    )
    loss = CrossEntropy(draw(st.sampled_from([0.0, 0.1, 0.5]) | st.floats(0, 0.99)), weights)
    scale = draw(st.sampled_from([0.1, 3.0, 30.0]))
    logits = scale * torch.randn(batch, classes, generator=generator, dtype=torch.float64)
    return loss, logits, torch.randint(classes, (batch,), generator=generator)


def by_torch(loss: CrossEntropy, logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    weights = loss.class_weights
    return functional.cross_entropy(
        logits,
        labels,
        weight=None if weights is None else torch.tensor(weights, dtype=logits.dtype),
        label_smoothing=loss.label_smoothing,
        reduction=reduction,
    )


def automatic(loss: CrossEntropy, logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(by_torch(loss, logits, labels, "sum"), logits)[0]


@settings(max_examples=150)
@given(labelled())
def test_cross_entropy_is_torch_s(drawn: tuple[CrossEntropy, Tensor, Tensor]) -> None:
    loss, logits, labels = drawn
    total = loss.total(logits, labels)
    torch.testing.assert_close(total, by_torch(loss, logits, labels, "sum"))
    mean = total / loss.denominator(labels)
    torch.testing.assert_close(mean, by_torch(loss, logits, labels, "mean"))
    asked = loss.targets(logits.shape[1])[labels]
    torch.testing.assert_close(-(asked * logits.log_softmax(1)).sum(), total)


@settings(max_examples=150)
@given(labelled())
@pytest.mark.slow
def test_the_gradient_is_the_automatic_one(drawn: tuple[CrossEntropy, Tensor, Tensor]) -> None:
    loss, logits, labels = drawn
    found = loss.gradient(logits, labels)
    size = max(loss.class_weights or (1.0,))
    expected = automatic(loss, logits, labels)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14 * size)
    asked = loss.targets(logits.shape[1])[labels]
    by_formula = asked.sum(1, keepdim=True) * torch.softmax(logits, 1) - asked
    torch.testing.assert_close(found, by_formula, rtol=1e-9, atol=1e-14 * size)


@settings(max_examples=80)
@given(st.floats(0, 600), st.integers(0, 1), st.floats(0.1, 10))
def test_the_gradient_keeps_its_digits_where_the_prediction_is_certain(
    margin: float, label: int, weight: float
) -> None:
    logits = torch.zeros(1, 2, dtype=torch.float64)
    logits[0, label] = margin
    loss = CrossEntropy(class_weights=(weight, weight))
    missing = weight * math.exp(-margin) / (1 + math.exp(-margin))  # w (1 - p_y)
    found = loss.gradient(logits, torch.tensor([label]))[0]
    assert found[label] == pytest.approx(-missing, rel=1e-13, abs=0)
    assert found[1 - label] == pytest.approx(missing, rel=1e-13, abs=0)


def test_the_gradient_of_a_smoothed_loss_vanishes_at_the_smoothed_label() -> None:
    loss = CrossEntropy(label_smoothing=0.2)
    logits = loss.targets(5).log()
    assert loss.gradient(logits, torch.arange(5)).abs().max() < 1e-15


def test_the_gradient_has_the_dtype_of_the_logits() -> None:
    for dtype in (torch.float64, torch.float32):
        logits = torch.zeros(2, 3, dtype=dtype)
        assert CrossEntropy(0.1).gradient(logits, torch.tensor([0, 1])).dtype == dtype


def test_what_is_asked_of_each_label() -> None:
    assert torch.equal(CrossEntropy().targets(4), torch.eye(4, dtype=torch.float64))
    found = CrossEntropy(label_smoothing=0.1, class_weights=(2.0, 4.0)).targets(2)
    # (1 - s) w_y for the label itself, and s w_k / K for every class.
    expected = [[0.9 * 2 + 0.1, 0.2], [0.1, 0.9 * 4 + 0.2]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


OF_OUTPUTS: list[tuple[Loss, Callable[..., Tensor]]] = [
    (MeanSquaredError(), functional.mse_loss),
    (BinaryCrossEntropy(), functional.binary_cross_entropy_with_logits),
]


@pytest.mark.parametrize(("loss", "torch_s"), OF_OUTPUTS, ids=[loss.name for loss, _ in OF_OUTPUTS])
@settings(max_examples=40)
@given(batch=st.integers(1, 6), width=st.integers(1, 6), seed=st.integers(0, 1000))
def test_losses_of_outputs_are_torch_s(
    loss: Loss, torch_s: Callable[..., Tensor], batch: int, width: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(batch, width, generator=generator, dtype=torch.float64)
    y = torch.rand(batch, width, generator=generator)
    loss.check(outputs, y)
    total = loss.total(outputs, y)
    torch.testing.assert_close(total, torch_s(outputs, y.double(), reduction="sum"))
    mean = torch_s(outputs, y.double(), reduction="mean")
    torch.testing.assert_close(total / loss.denominator(y), mean)


def test_labels_that_do_not_count_are_left_out_of_the_mean() -> None:
    loss = CrossEntropy(class_weights=(0.0, 2.0))
    logits, labels = torch.tensor([[1.0, 0.0]] * 3), torch.tensor([0, 1, 1])
    loss.check(logits, labels)
    assert loss.denominator(labels) == 4.0
    assert loss.gradient(logits, labels)[0].tolist() == [0.0, 0.0]


def test_a_loss_is_a_value_that_prints_its_settings() -> None:
    loss = CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0))
    assert repr(loss) == "CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0))"
    assert loss == CrossEntropy(0.1, (1.0, 2.0)) != CrossEntropy()
    assert len({loss, CrossEntropy(0.1, (1.0, 2.0)), MeanSquaredError(), MeanSquaredError()}) == 2
    losses: list[Loss] = [CrossEntropy(), MeanSquaredError(), BinaryCrossEntropy()]
    names = ["cross-entropy", "mean squared error", "binary cross-entropy"]
    assert [loss.name for loss in losses] == names


LOGITS, LABELS = torch.zeros(3, 4), torch.tensor([0, 1, 3])
OUTPUTS = torch.zeros(3, 2)
WEIGHTS_RULE = "expected a tuple of numbers of at least 0, not all 0"
ERRORS: list[tuple[Callable[[], Any], str]] = [
    *[
        (
            lambda value=value: CrossEntropy(label_smoothing=value),
            f"label_smoothing={value!r}: expected a number from 0 to below 1",
        )
        for value in (-0.1, 1.0, 2.0, math.nan, True, "0.1", None)
    ],
    *[
        (
            lambda value=value: CrossEntropy(class_weights=value),
            f"class_weights={value!r}: {WEIGHTS_RULE}",
        )
        for value in ((), (0.0, 0.0), (1.0, -1.0), (1.0, math.inf), (1.0, "2"), [1.0, 2.0], 3.0)
    ],
    (
        lambda: CrossEntropy().check(torch.zeros(3), LABELS),
        "model: output shape (3,): expected (batch, classes)",
    ),
    (
        lambda: CrossEntropy().check(LOGITS, LABELS[:2]),
        "y: shape (2,): expected one label for each of 3 samples",
    ),
    (
        lambda: CrossEntropy().check(LOGITS, LABELS.double()),
        "y: dtype torch.float64: expected integer class labels",
    ),
    (
        lambda: CrossEntropy().check(LOGITS, LABELS + 1),
        "y: labels 1..4: the model has classes 0..3",
    ),
    (
        lambda: CrossEntropy(class_weights=(1.0,) * 5).check(LOGITS, LABELS),
        "class_weights of 5 values: the model has 4 classes",
    ),
    (
        lambda: CrossEntropy(class_weights=(1.0,) * 5).targets(4),
        "class_weights of 5 values: the model has 4 classes",
    ),
    (
        lambda: CrossEntropy(class_weights=(0.0, 0.0, 1.0, 0.0)).check(LOGITS, LABELS),
        "y: every label has class weight 0: expected one that counts",
    ),
    *[
        (
            lambda loss=loss, outputs=outputs, y=y: loss.check(outputs, y),
            message,
        )
        for loss in (MeanSquaredError(), BinaryCrossEntropy())
        for outputs, y, message in (
            (torch.zeros(3), torch.zeros(3), "model: output shape (3,): expected (batch, outputs)"),
            (OUTPUTS, torch.zeros(3), "y: shape (3,): expected (3, 2), as the outputs have"),
            (OUTPUTS, torch.zeros(3, 2).long(), "y: dtype torch.int64: expected floating point"),
        )
    ],
    (
        lambda: MeanSquaredError().check(OUTPUTS, OUTPUTS + math.inf),
        "y: holds values that are not finite",
    ),
    *[
        (
            lambda value=value: BinaryCrossEntropy().check(OUTPUTS, OUTPUTS + value),
            "y: holds values outside [0, 1]: expected one probability per output",
        )
        for value in (1.5, -0.1, math.nan)
    ],
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
