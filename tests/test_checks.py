"""What no call takes: networks and settings that cannot be meant, refused by every way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradpeel as gp
from gradpeel.checks import count_not_finite
from gradpeel.device import choose
from support import make_batch, make_model, round_of

X, Y = make_batch(24, 6, 4)
MODEL = make_model(24, 40, 4)
UPDATE = round_of(MODEL, X, Y).update


def spoilt(name: str, value: float) -> nn.Sequential:
    model = make_model(24, 40, 4)
    with torch.no_grad():
        model.get_parameter(name).view(-1)[1] = value
    return model


WAYS_IN: dict[str, Callable[[nn.Module], object]] = {
    "peel": lambda model: gp.peel(model, UPDATE),
    "peel without tail": lambda model: gp.peel(model, UPDATE, knows_tail=False),
    "audit": lambda model: gp.audit(model, X, Y),
    "exposure": lambda model: gp.exposure(model, X),
}


@pytest.mark.parametrize("call", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["0.weight", "0.bias", "2.weight", "2.bias"])
def test_values_that_are_not_finite_are_named(
    call: Callable[[nn.Module], object], name: str, value: float
) -> None:
    with pytest.raises(gp.ModelRefusedError, match=f"'{name}': 1 of .* values are not finite"):
        call(spoilt(name, value))


@pytest.mark.parametrize("call", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize("model", [None, "model", nn.Linear])
def test_only_networks_are_taken(call: Callable[[Any], object], model: object) -> None:
    kind = type(model).__name__
    with pytest.raises(gp.InputError, match=f"^model of type {kind}: expected a torch.nn.Module$"):
        call(model)


@pytest.mark.parametrize("call", WAYS_IN.values(), ids=WAYS_IN)
def test_a_network_without_parameters_is_refused(call: Callable[[nn.Module], object]) -> None:
    with pytest.raises(gp.ModelRefusedError, match="no Linear layer found"):
        call(nn.Flatten())


LOSSES = "gradpeel.CrossEntropy() or torch.nn.CrossEntropyLoss()"
NUMBERS = "expected two numbers, the smaller one first"
WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    *[
        ({"data_range": given}, f"data_range={given!r}: {NUMBERS}")
        for given in (("a", "b"), (0,), (0, 1, 2), (None, 1), (0, None), (0, 1j), (torch.nan, 1), 3)
    ],
    ({"data_range": (1, 0)}, "data_range=(1, 0): expected the smaller value first"),
    ({"data_range": (10**400, 10**401)}, f"data_range=({10**400}, {10**401}): {NUMBERS}"),
    *[
        (
            {"loss": given},
            f"loss={given!r}: expected a loss such as {LOSSES}",
        )
        for given in ("cross-entropy", gp.CrossEntropy, nn.CrossEntropyLoss, nn.NLLLoss(), None, 3)
    ],
    *[
        ({"sample_shape": given}, f"sample_shape={given!r}: expected a tuple of positive integers")
        for given in (24, (24.0,), (-4, -6), "24", (4, None), (0,))
    ],
    ({"device": 1.5}, "device=1.5: expected one of auto, cpu, cuda, mps"),
    ({"device": None}, "device=None: expected one of auto, cpu, cuda, mps"),
    ({"update": None}, "update of type NoneType: expected gradpeel.Update"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS)
def test_wrong_settings_of_the_decoder(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        gp.peel(**{"model": MODEL, "update": UPDATE, **settings})
    assert str(caught.value) == message


@pytest.mark.parametrize("data_range", [(0, 1), [0.0, 1.0], (-torch.inf, torch.inf), None])
def test_ranges_that_can_be_meant(data_range: Any) -> None:
    assert len(gp.peel(MODEL, UPDATE, data_range=data_range)) == len(X)


def test_a_device_may_be_given_as_such() -> None:
    assert choose(torch.device("cpu")).type == choose("auto").type == "cpu"


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int8],
)
def test_values_that_are_not_finite_are_counted(dtype: torch.dtype) -> None:
    assert count_not_finite(torch.zeros(0).to(dtype)) == 0
    # Their sum overflows, but they do not.
    assert count_not_finite(torch.full((300, 3), torch.iinfo(torch.int8).max).to(dtype)) == 0
    if dtype.is_floating_point:
        largest = torch.full((200,), torch.finfo(dtype).max, dtype=torch.float64).to(dtype)
        assert count_not_finite(largest) == 0
        some = torch.tensor([1.0, torch.nan, torch.inf, 2.0, -torch.inf]).to(dtype)
        assert count_not_finite(some) == 3
