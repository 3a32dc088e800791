"""The client against slow, obvious gradients: one sample at a time, and by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gradpeel import Client
from gradpeel.client import local_update
from gradpeel.errors import InputError
from gradpeel.gradients import gradients
from gradpeel.losses import BinaryCrossEntropy, CrossEntropy, Loss, MeanSquaredError
from gradpeel.update import Reduction
from support import SmallRound, make_batch, make_model, make_round

EVERY_DTYPE = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

ROUNDS = st.builds(
    make_round,
    features=st.integers(1, 20),
    neurons=st.integers(1, 20),
    batch=st.integers(1, 7),
    classes=st.integers(1, 9),
    hidden=st.sampled_from([(), (5,), (6, 4)]),
    seed=st.integers(0, 10_000),
    reduction=st.sampled_from(["mean", "sum"]),
)


def one_by_one(round_: SmallRound) -> dict[str, Tensor]:
    """The batch gradient as a sum over batches of one sample, through `backward`."""
    model = copy.deepcopy(round_.model)
    for x, y in zip(round_.x, round_.y, strict=True):
        functional.cross_entropy(model(x[None]), y[None]).backward()  # type: ignore[no-untyped-call]
    count = len(round_.x) if round_.update.reduction == "mean" else 1
    found = {name: p.grad for name, p in model.named_parameters()}
    return {name: grad / count for name, grad in found.items() if grad is not None}


@settings(max_examples=80)
@given(ROUNDS)
def test_equals_the_sum_over_single_samples(round_: SmallRound) -> None:
    expected = one_by_one(round_)
    assert list(round_.update.gradients) == list(expected)
    for name, gradient in round_.update.gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-12)


@settings(max_examples=40)
@given(
    st.builds(
        make_round,
        features=st.integers(1, 20),
        neurons=st.integers(1, 20),
        batch=st.integers(1, 7),
        classes=st.integers(1, 9),
        seed=st.integers(0, 10_000),
    )
)
def test_equals_the_paper_s_formulas_for_two_layers(round_: SmallRound) -> None:
    first, last = round_.model[0], round_.model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    z = round_.x @ first.weight.T + first.bias
    a = z.clamp(min=0)
    residue = torch.softmax(a @ last.weight.T + last.bias, 1)
    residue = (residue - functional.one_hot(round_.y, residue.shape[1])) / len(round_.x)
    c = (residue @ last.weight) * (z > 0)
    by_hand = {
        "0.weight": c.T @ round_.x,
        "0.bias": c.sum(0),
        "2.weight": residue.T @ a,
        "2.bias": residue.sum(0),
    }
    for name, gradient in round_.update.gradients.items():
        torch.testing.assert_close(gradient, by_hand[name].detach(), rtol=1e-10, atol=1e-12)


@settings(max_examples=25)
@given(ROUNDS, st.data())
def test_parts_of_a_batch_add_up_to_it(round_: SmallRound, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(round_.x)))
    share = round_.update.share
    assert share is not None
    parts = [
        gradients(round_.model, x, y, share=share)
        for x, y in zip(torch.split(round_.x, cut), torch.split(round_.y, cut), strict=True)
    ]
    for name, whole in round_.update.gradients.items():
        total = torch.stack([part[name] for part in parts]).sum(0)
        torch.testing.assert_close(whole, total, rtol=1e-10, atol=1e-12)


def test_carries_what_is_known_about_the_round() -> None:
    update = make_round(batch=6, reduction="sum").update
    assert update.batch_size == 6
    assert update.reduction == "sum"
    assert update.share == 1.0
    assert make_round(batch=6).update.share == 1 / 6
    assert all(not gradient.requires_grad for gradient in update.gradients.values())


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_computes_in_the_dtype_asked_for(dtype: torch.dtype) -> None:
    exact = make_round()
    update = local_update(exact.model, exact.x, exact.y, Client(dtype=dtype))
    assert update.dtype == dtype
    # The model's weights are rounded too, as those of a client that works in this dtype.
    rounded = local_update(copy.deepcopy(exact.model).to(dtype), exact.x, exact.y)
    for name, gradient in update.gradients.items():
        assert torch.equal(gradient, rounded.gradients[name])
        size = exact.update.gradients[name].abs().max()
        gap = (gradient.double() - exact.update.gradients[name]).abs().max()
        assert gap <= 64 * torch.finfo(dtype).eps * size
        assert (gap > 0) == (dtype != torch.float64)


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_takes_the_model_s_own_dtype_where_none_is_given(dtype: torch.dtype) -> None:
    assert make_round(dtype=dtype).update.dtype == dtype


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str
)
def test_labels_of_every_integer_dtype_are_the_same_labels(dtype: torch.dtype) -> None:
    round_ = make_round()
    update = local_update(round_.model, round_.x, round_.y.to(dtype))
    for name, gradient in update.gradients.items():
        assert torch.equal(gradient, round_.update.gradients[name])


WEIGHTS = (0.5, 2.0, 1.0)
LOSSES: dict[str, tuple[Loss, Callable[..., Tensor]]] = {
    "smoothed": (
        CrossEntropy(label_smoothing=0.1),
        lambda out, y, **how: functional.cross_entropy(out, y, label_smoothing=0.1, **how),
    ),
    "weighted": (
        CrossEntropy(class_weights=WEIGHTS),
        lambda out, y, **how: functional.cross_entropy(
            out, y, torch.tensor(WEIGHTS).to(out), **how
        ),
    ),
    "squared": (MeanSquaredError(), functional.mse_loss),
    "multi-label": (BinaryCrossEntropy(), functional.binary_cross_entropy_with_logits),
}


def targets_of(loss: Loss, y: Tensor) -> Tensor:
    """Labels for the cross-entropy, a number in [0, 1] for each of three outputs for the others."""
    return y if isinstance(loss, CrossEntropy) else torch.linspace(0, 1, 3 * len(y)).view(-1, 3)


def by_backward(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, Tensor]:
    """What a client's own training loop would find, and PyTorch's own reduction."""
    model.zero_grad()
    loss().backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad for name, p in model.named_parameters()}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("loss", "torch_s"), LOSSES.values(), ids=LOSSES)
def test_every_loss_is_what_a_training_loop_minimises(
    loss: Loss, torch_s: Callable[..., Tensor], reduction: Reduction
) -> None:
    model, (x, labels) = make_model(6, 10, 3, (5,)), make_batch(6, 7, 3)
    y = targets_of(loss, labels)
    update = local_update(model, x, y, Client(loss=loss, reduction=reduction))
    like = y if isinstance(loss, CrossEntropy) else y.double()
    expected = by_backward(model, lambda: torch_s(model(x), like, reduction=reduction))
    assert (update.batch_size, update.reduction) == (7, reduction)
    for name, gradient in update.gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("loss", "_"), LOSSES.values(), ids=LOSSES)
def test_parts_add_up_for_every_loss(loss: Loss, _: object) -> None:
    model, (x, labels) = make_model(6, 10, 3), make_batch(6, 7, 3)
    y = targets_of(loss, labels)
    share = 1 / loss.denominator(y)
    parts = [
        gradients(model, x[at], y[at], share=share, loss=loss) for at in (slice(3), slice(3, 7))
    ]
    for name, whole in local_update(model, x, y, Client(loss=loss)).gradients.items():
        total = torch.stack([part[name] for part in parts]).sum(0)
        torch.testing.assert_close(whole, total, rtol=1e-10, atol=1e-12)


def training_model() -> nn.Sequential:
    """The usual layers, in training mode."""
    return nn.Sequential(
        nn.Linear(6, 10),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(10, 8),
        nn.BatchNorm1d(8),
        nn.GELU(),
        nn.LayerNorm(8),
        nn.Tanh(),
        nn.Linear(8, 3),
    ).double()


def test_dropout_and_batch_norm_do_what_training_does() -> None:
    model, (x, y) = training_model(), make_batch(6, 7, 3)
    update = local_update(copy.deepcopy(model), x, y, seed=5)

    def loss() -> Tensor:
        torch.manual_seed(5)
        return functional.cross_entropy(model(x), y)

    expected = by_backward(model, loss)
    for name, gradient in update.gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-12)
    quiet = local_update(copy.deepcopy(model).eval(), x, y, seed=5)
    assert not torch.allclose(quiet.gradients["0.weight"], update.gradients["0.weight"])


def test_a_seed_names_what_is_dropped() -> None:
    model, (x, y) = training_model(), make_batch(6, 7, 3)
    before = torch.get_rng_state()
    one, same, other = (local_update(model, x, y, seed=seed).gradients for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.parametrize(("loss", "_"), LOSSES.values(), ids=LOSSES)
def test_the_usual_layers_train_in_every_dtype(loss: Loss, _: object, dtype: torch.dtype) -> None:
    model, (x, labels) = training_model(), make_batch(6, 7, 3)
    y = targets_of(loss, labels)
    exact = local_update(model, x, y, Client(loss=loss)).gradients["8.weight"]
    update = local_update(model, x, y, Client(loss=loss, dtype=dtype))
    assert update.dtype == dtype
    gap = (update.gradients["8.weight"].double() - exact).abs().max()
    assert gap <= 500 * torch.finfo(dtype).eps * exact.abs().max()


def test_leaves_the_model_as_it_was() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 10), nn.ReLU(), nn.BatchNorm1d(10), nn.Linear(10, 3)]
    model = nn.Sequential(*layers).train()  # training mode: batch norm counts what it sees
    x, y = make_batch(6, 5, 3)
    before = copy.deepcopy(model.state_dict())
    local_update(model, x, y, Client(dtype=torch.float64))
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_frozen_parameters_are_left_out() -> None:
    round_ = make_round(hidden=(7,))
    model = copy.deepcopy(round_.model)
    model[2].requires_grad_(requires_grad=False)
    update = local_update(model, round_.x, round_.y)
    assert set(update.gradients) == {"0.weight", "0.bias", "4.weight", "4.bias"}
    for name, gradient in update.gradients.items():
        assert torch.equal(gradient, round_.update.gradients[name])


def test_a_parameter_the_loss_does_not_see_has_a_gradient_of_zero() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = make_model(4, 6, 3)
            self.idle = nn.Linear(2, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.body(x)
            return logits

    update = local_update(Idle(), *make_batch(4, 5, 3))
    assert torch.equal(update.gradients["idle.weight"], torch.zeros(2, 2).double())


def test_works_where_gradients_are_switched_off() -> None:
    round_ = make_round()
    with torch.no_grad():
        update = local_update(round_.model, round_.x, round_.y)
    for name, gradient in update.gradients.items():
        assert torch.equal(gradient, round_.update.gradients[name])


class TwoInputs(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, input: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]  # noqa: A002
        return super().forward(input * mask)


MODEL = make_model(4, 6, 3)
X, Y = make_batch(4, 5, 3)
EXAMPLES = "gradpeel.CrossEntropy() or torch.nn.CrossEntropyLoss()"
ERRORS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: local_update(MODEL, X[:0], Y[:0]),
        "x of shape (0, 4): expected (batch, *sample_shape), not empty",
    ),
    (
        lambda: local_update(MODEL, X, Y[:4]),
        "y: shape (4,): expected one label for each of 5 samples",
    ),
    (
        lambda: local_update(MODEL, X, Y[:, None]),
        "y: shape (5, 1): expected one label for each of 5 samples",
    ),
    (
        lambda: local_update(MODEL, X, Y[0]),
        "y: shape (): expected one label for each of 5 samples",
    ),
    (
        lambda: local_update(MODEL, X, Y.double()),
        "y: dtype torch.float64: expected integer class labels",
    ),
    (
        lambda: local_update(MODEL, X, Y > 0),
        "y: dtype torch.bool: expected integer class labels",
    ),
    (
        lambda: local_update(MODEL, X, torch.tensor([0, 1, 2, 3, 0])),
        "y: labels 0..3: the model has classes 0..2",
    ),
    (
        lambda: local_update(MODEL, X, torch.tensor([0, 1, -1, 2, 0])),
        "y: labels -1..2: the model has classes 0..2",
    ),
    (
        lambda: local_update(MODEL, X / 0, Y),
        "x: 20 of 20 values are not finite",
    ),
    (
        lambda: local_update(MODEL, torch.log(X - 2), Y),
        "x: 20 of 20 values are not finite",
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(dtype=torch.int64)),
        "dtype=torch.int64: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(dtype=torch.complex64)),
        "dtype=torch.complex64: expected float64, float32, bfloat16 or float16",
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(reduction="none")),  # type: ignore[arg-type]
        "reduction='none': expected one of ('mean', 'sum')",
    ),
    (
        lambda: local_update(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), X, Y),
        "model: output shape (5,): expected (batch, classes)",
    ),
    (
        lambda: local_update(
            nn.Sequential(nn.Linear(4, 6), nn.Flatten(0), nn.Unflatten(0, (10, 3))), X, Y
        ),
        "model: output shape (10, 3): expected one row for each of 5 samples",
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(loss=MeanSquaredError())),
        "y: shape (5,): expected (5, 3), as the outputs have",
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(loss=CrossEntropy(class_weights=(1.0, 2.0)))),
        "class_weights of 2 values: the model has 3 classes",
    ),
    *[
        (
            lambda seed=seed: local_update(MODEL, X, Y, seed=seed),
            f"seed={seed!r}: expected an integer of at least 0",
        )
        for seed in (-1, 2**64, 0.5, True)
    ],
    (
        lambda: local_update(MODEL, 1e9 * X, Y, Client(dtype=torch.float16)),
        "x: 20 of 20 values are not finite in torch.float16",
    ),
    (
        lambda: local_update(MODEL, X + 1j, Y),
        "x of dtype torch.complex128: expected real numbers",
    ),
    (
        lambda: local_update(MODEL, X.to_sparse(), Y),
        "x: a sparse tensor: expected a dense one, such as to_dense() gives",
    ),
    (
        lambda: local_update(MODEL, "x", Y),
        "x of type str: expected a tensor of numbers",
    ),
    (
        lambda: local_update(MODEL, X, None),
        "y=None: expected labels or targets: x of Tensor has none",
    ),
    (
        lambda: local_update(MODEL, X, Y.to("meta")),
        "y: a tensor on the device meta holds no values",
    ),
    (
        lambda: local_update(None, X, Y),  # type: ignore[arg-type]
        "model of type NoneType: expected a torch.nn.Module",
    ),
    *[
        (
            lambda loss=loss: local_update(MODEL, X, Y, Client(loss=loss)),
            f"loss={loss!r}: expected a loss such as {EXAMPLES}",
        )
        for loss in (None, "mse", CrossEntropy, nn.NLLLoss())
    ],
    (
        lambda: local_update(TwoInputs(), X, Y),
        (
            "x of shape (5, 4): the model does not take it (TwoInputs.forward() missing 1 required "
            "positional argument: 'mask')"
        ),
    ),
    (
        lambda: local_update(MODEL, X, Y, Client(loss=CrossEntropy(class_weights=(1e308,) * 3))),
        "class_weights: their sum over the batch is too large",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "call",
    [
        lambda: local_update(MODEL, X[:, :3], Y),
        lambda: local_update(nn.Flatten(), X, Y),
        lambda: local_update(make_model(4, 6, 3).requires_grad_(requires_grad=False), X, Y),
        lambda: local_update(MODEL, torch.tensor(1.0), Y),
        lambda: local_update(training_model(), make_batch(6, 1, 3)[0], Y[:1]),
    ],
    ids=["another width", "no parameters", "all frozen", "no batch", "batch norm of one sample"],
)
def test_what_does_not_fit_is_told_in_a_line(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()
