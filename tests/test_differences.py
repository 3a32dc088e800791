"""Updates from models, state dicts and arrays: the gradient comes back, and how exactly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.decoder import residual
from gradpeel.errors import InputError
from gradpeel.rounding import rounding_of
from support import default_model, make_batch

FEATURES, CLASSES = 20, 3


def step(model: nn.Module, optimiser: torch.optim.Optimizer, count: int = 6) -> dict[str, Tensor]:
    """Take one step and return the gradient."""
    x, y = make_batch(FEATURES, count, CLASSES)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(next(model.parameters()))), y)
    torch.autograd.backward(loss)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    optimiser.step()
    return found


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    return default_model(FEATURES, 40, CLASSES, dtype=dtype)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


class Record:
    """As Flower's ArrayRecord does it."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def to_torch_state_dict(self) -> dict[str, Tensor]:
        return self.tensors


FORMS: dict[str, Any] = {
    "model": copy.deepcopy,
    "state dict": state,
    "arrays by name": lambda model: {name: v.numpy() for name, v in state(model).items()},
    "ArrayRecord": lambda model: Record(state(model)),
    "list": lambda model: [value.numpy() for value in state(model).values()],
}


@pytest.mark.parametrize("first", [form for form in FORMS if form != "list"])
@pytest.mark.parametrize("second", FORMS)
def test_any_form_gives_the_gradient(first: str, second: str) -> None:
    model = network()
    before = FORMS[first](model)
    gradient = step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    after = FORMS[second](model)
    update = gp.Update.from_weights(before, after, lr=0.1, steps=1, batch_size=6)
    assert list(update.gradients) == list(gradient)
    for name, found in update.gradients.items():
        assert torch.allclose(found, gradient[name], rtol=0, atol=1e-14)
    assert update.training == gp.LocalTraining(lr=0.1, steps=1)
    assert gp.peel(model, update, effort=0.0).batch_size.value == 6


def test_after_backward() -> None:
    model = network()
    gradient = step(model, torch.optim.SGD(model.parameters(), lr=0.0))
    update = gp.Update.from_gradients(model, batch_size=6)
    assert all(torch.equal(update.gradients[name], gradient[name]) for name in gradient)
    model.zero_grad()
    assert all(torch.equal(update.gradients[name], gradient[name]) for name in gradient)
    with pytest.raises(InputError, match="no parameter has a gradient: expected one after back"):
        gp.Update.from_gradients(model)


def test_buffers_are_ignored() -> None:
    model = nn.Sequential(*network(), nn.BatchNorm1d(CLASSES).double())
    before = copy.deepcopy(model)
    gradient = step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert len(model.state_dict()) == len(gradient) + 3
    for forms in (("model", "list"), ("state dict", "state dict"), ("state dict", "list")):
        update = gp.Update.from_weights(
            *(FORMS[f](m) for f, m in zip(forms, (before, model), strict=True))
        )
        assert set(update.gradients) == set(gradient)


@given(
    lr=st.sampled_from([1.0, 0.1, 0.01]),
    weight_decay=st.sampled_from([0.0, 1e-4, 1e-2]),
    momentum=st.sampled_from([0.0, 0.9]),
    declared=st.booleans(),
)
def test_weight_decay_is_undone_or_found(
    lr: float, weight_decay: float, momentum: float, declared: bool
) -> None:
    model = network()
    before = state(model)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum
    )
    gradient = step(model, optimiser)
    # In the first step momentum is still zero.
    update = gp.Update.from_weights(
        before,
        model,
        lr=lr,
        momentum=momentum,
        steps=1,
        weight_decay=weight_decay if declared else None,
    )
    assert update.training is not None
    assert update.training.weight_decay == pytest.approx(weight_decay, rel=1e-6, abs=1e-11)
    for name, found in update.gradients.items():
        assert torch.allclose(found, gradient[name], rtol=0, atol=1e-12 / lr)


def test_weight_decay_that_cannot_be_found_is_not_made_up() -> None:
    model = network()
    before = state(model)
    x, y = make_batch(FEATURES, 6, CLASSES)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    loss = nn.functional.mse_loss(model(x), nn.functional.one_hot(y, CLASSES).double())
    torch.autograd.backward(loss)
    optimiser.step()
    with pytest.raises(InputError, match="weight decay cannot be found: state it"):
        gp.Update.from_weights(before, model, lr=0.1, steps=1, weight_decay=None)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_signs_that_adam_leaves_are_refused(kind: Any) -> None:
    model = network()
    before = state(model)
    step(model, kind(model.parameters(), lr=1e-3))
    with pytest.raises(InputError, match="as in a step of Adam, which leaves only the signs"):
        gp.Update.from_weights(before, model)


@pytest.mark.parametrize("lr", [1.0, 0.1, 1e-3])
def test_roundings_of_a_difference_are_as_large_as_they_are_said_to_be(lr: float) -> None:
    model = network(torch.float32)
    before = copy.deepcopy(model)
    gradient = step(model, torch.optim.SGD(model.parameters(), lr=lr))
    update = gp.Update.from_weights(before, model, lr=lr, steps=1)
    assert update.training is not None
    for name in ("0.weight", "2.weight"):
        off = (update.gradients[name] - gradient[name]).double()
        ends = (net.get_parameter(name).detach().abs() for net in (before, model))
        said = rounding_of(torch.maximum(*ends), torch.float32, update.training)
        touched = gradient[name].abs() > said  # what is less than an ulp is not added at all
        ratio = (off[touched] / said[touched]).square().mean().sqrt()
        assert 0.7 < float(ratio) < 1.4


@pytest.mark.parametrize("lr", [1.0, 0.1, 0.01, 1e-3])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_a_difference_is_decoded_like_the_gradient(lr: float, weight_decay: float) -> None:
    model = default_model(60, 300, CLASSES)
    x, y = make_batch(60, 8, CLASSES)
    client = gp.Client(lr=lr, local_steps=1, weight_decay=weight_decay)
    by_gradient = gp.audit(model, x, y)
    by_weights = gp.audit(model, x, y, client=client)
    assert by_gradient.score.recovered == 8
    assert by_weights.score.read == 8
    # At the smallest rate the roundings of the weights hide what one sample weighs.
    assert by_weights.score.recovered == 8 or lr == 1e-3
    assert by_weights.score.false_certificates == 0


def test_gradients_are_decoded_as_they_always_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what differences need is asked of an update that is none."""

    def refuse(*_: object) -> Tensor:
        raise AssertionError

    monkeypatch.setattr(residual, "rounding_of", refuse)
    model = network()
    x, y = make_batch(FEATURES, 6, CLASSES)
    assert len(gp.peel(model, gp.local_update(model, x, y))) == 6
    with pytest.raises(AssertionError):
        gp.peel(model, gp.local_update(model, x, y, gp.Client(lr=0.1, local_steps=1)))


ONE = {"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (ONE, ONE, "before, after: no weight has changed: there is nothing to decode"),
        (ONE, {"a.bias": torch.ones(2)}, "after: 'a.weight' missing, which the other one has"),
        (ONE, ONE | {"b": torch.ones(2)}, "before: 'b' missing, which the other one has"),
        (ONE, ONE | {"a.bias": torch.ones(3)}, "a.bias: (2,) before, (3,) after: expected the sa"),
        (ONE, ONE | {"a.bias": torch.ones(2).double()}, "a.bias: torch.float32 before, torch.flo"),
        (ONE, ONE | {"a.bias": torch.ones(2).int()}, "after: a.bias: dtype torch.int32: expected"),
        (ONE, ONE | {"a.bias": np.ones(2, str)}, "after: a.bias: dtype <U1: expected floating"),
        (ONE, ONE | {"a.bias": torch.ones(2).to_sparse()}, "after: a.bias: a sparse tensor: expec"),
        (ONE, ONE | {"a.bias": 3.0}, "after: a.bias of type float: expected a tensor or a NumPy"),
        (ONE, [np.ones(2)], "after: 1 arrays: expected 2 or 2, as the model has"),
        ([np.ones(2)], [np.ones(2)], "before, after: two lists without names: give one as a mode"),
        (ONE, "weights", "after of type str: expected a model, a state dict or arrays"),
    ],
)
def test_errors_name_the_thing_and_the_rule(before: Any, after: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        gp.Update.from_weights(before, after)
    assert message in str(error.value)


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_may_have_any_byte_order_and_any_strides(order: str) -> None:
    after = np.arange(4, dtype=f"{order}f4").reshape(2, 2)[::-1]
    update = gp.Update.from_weights(ONE, ONE | {"a.weight": after})
    assert update.gradients["a.weight"].tolist() == [[-1.0, -2.0], [1.0, 0.0]]
