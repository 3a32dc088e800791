"""PyTorch's own losses wherever a loss is taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradpeel as gp
from gradpeel import Client, CrossEntropy, InputError, local_update, peel
from gradpeel.torch_losses import as_loss
from support import make_batch, make_model

WEIGHTS = torch.tensor([1.0, 2.0, 0.5])
MODULES: list[Callable[[], nn.Module]] = [
    nn.CrossEntropyLoss,
    lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
    lambda: nn.CrossEntropyLoss(weight=WEIGHTS.double()),
    lambda: nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2, reduction="sum"),
    nn.MSELoss,
    lambda: nn.MSELoss(reduction="sum"),
    nn.BCEWithLogitsLoss,
    lambda: nn.BCEWithLogitsLoss(reduction="sum"),
]


@pytest.mark.parametrize("make", MODULES)
def test_the_gradient_is_pytorch_s(make: Callable[[], nn.Module]) -> None:
    model, (x, y) = make_model(8, 20, 3), make_batch(8, 6, 3)
    module = make().double()
    if not isinstance(module, nn.CrossEntropyLoss):
        y = functional.one_hot(y, 3).double()
    client = Client(loss=module, reduction=module.reduction)  # type: ignore[arg-type]
    update = local_update(model, x, y, client)
    module(model(x), y).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(update.gradients[name], parameter.grad, rtol=1e-10, atol=1e-12)


def test_audit_and_peel_take_them() -> None:
    model, (x, y) = make_model(24, 200, 3), make_batch(24, 6, 3)
    module = nn.CrossEntropyLoss(label_smoothing=0.1)
    found = gp.audit(model, x, y, client=Client(loss=module))
    assert found.loss == CrossEntropy(label_smoothing=0.1)
    assert found.score.recovered == 6
    assert found.score.label_accuracy == 1
    decoded = peel(model, found.update, loss=module)
    assert torch.equal(decoded.samples, found.recovery.samples)


def test_a_client_does_not_change_with_the_module() -> None:
    module = nn.CrossEntropyLoss(label_smoothing=0.1)
    client = Client(loss=module)
    module.label_smoothing = 0.5
    assert client.loss == CrossEntropy(0.1)
    assert client == Client(loss=CrossEntropy(0.1))


class Focal(nn.CrossEntropyLoss):
    """Computes something else."""


RULE = "expected a loss such as gradpeel.CrossEntropy() or torch.nn.CrossEntropyLoss()"
ERRORS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: Client(loss=nn.CrossEntropyLoss(reduction="none")),
        "loss=nn.CrossEntropyLoss(reduction='none'): expected the reduction 'mean' or 'sum'",
    ),
    (
        lambda: Client(loss=nn.MSELoss(reduction="sum")),
        (
            "loss=nn.MSELoss(reduction='sum'): expected reduction='mean', which the rest of the "
            "round has"
        ),
    ),
    (
        lambda: Client(loss=nn.CrossEntropyLoss(ignore_index=1)),
        (
            "loss=nn.CrossEntropyLoss(ignore_index=1): not supported yet: expected that no label "
            "is ignored"
        ),
    ),
    (
        lambda: Client(loss=nn.BCEWithLogitsLoss(weight=WEIGHTS)),
        "loss=nn.BCEWithLogitsLoss(weight=...): not supported yet: expected no weight",
    ),
    (
        lambda: Client(loss=nn.BCEWithLogitsLoss(pos_weight=WEIGHTS)),
        "loss=nn.BCEWithLogitsLoss(pos_weight=...): not supported yet: expected no pos_weight",
    ),
    (lambda: as_loss(Focal()), f"loss of type Focal, a class of its own: {RULE}"),
    (lambda: as_loss(nn.MSELoss), f"loss=<class 'torch.nn.modules.loss.MSELoss'>: {RULE}"),  # type: ignore[arg-type]
    (lambda: as_loss(nn.L1Loss()), f"loss=L1Loss(): {RULE}"),  # type: ignore[arg-type]
    (
        lambda: as_loss(nn.CrossEntropyLoss(label_smoothing=1.0)),
        "label_smoothing=1.0: expected a number from 0 to below 1",
    ),
    (
        lambda: peel(
            make_model(4, 6, 3),
            local_update(make_model(4, 6, 3), *make_batch(4, 5, 3)),
            loss=nn.CrossEntropyLoss(reduction="sum"),
        ),
        (
            "loss=nn.CrossEntropyLoss(reduction='sum'): expected reduction='mean', which the rest "
            "of the round has"
        ),
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
