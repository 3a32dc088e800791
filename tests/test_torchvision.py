"""Every classifier of torchvision is split, or refused with reasons that are true of it.

Neither depends on the numbers in a network, and the largest of them have hundreds of millions. So
each parameter is one row of random numbers that all of its rows share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from gradpeel.errors import ModelRefusedError
from gradpeel.target import split

models = pytest.importorskip("torchvision.models")

# Classifiers whose head has ReLU, or an activation with a threshold, by the layer that is read.
HEADS = {"alexnet": "classifier.1", "mobilenet_v3": "classifier.0", "vgg": "classifier.0"}

# Why the others are refused, by what their names begin with.
GELU, LAST = ("is followed by GELU",), ("is followed by the output",)
REFUSED = {
    "convnext": GELU,
    "densenet": LAST,
    "efficientnet": LAST,
    "googlenet": LAST,
    "inception": LAST,
    "maxvit": ("is followed by chunk", "is followed by GELU"),
    "mnasnet": LAST,
    "mobilenet_v2": LAST,
    "regnet": LAST,
    "resnet": LAST,
    "resnext": LAST,
    "shufflenet": LAST,
    "squeezenet": ("no Linear layer found",),
    "swin": GELU,
    "vit": GELU,
    "wide_resnet": LAST,
}

# Two of them also return what their auxiliary heads say while they are trained.
TRAINING = {
    "googlenet": (
        "the model returns a GoogLeNetOutputs",
        "takes a value around Linear 'aux1.fc1'",
        "takes a value around Linear 'aux2.fc1'",
    ),
    "inception": (
        "the model returns a InceptionOutputs",
        "Linear 'AuxLogits.fc' is followed by InceptionOutputs",
    ),
}


class WithoutMemory(TorchFunctionMode):
    """Puts what layers make for their parameters on the meta device, where it takes no memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        return func(*args, **(kwargs | {"device": "meta"} if func is torch.empty else kwargs))


def make(name: str) -> nn.Module:
    """A classifier as torchvision makes it without weights."""
    settings = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    model: nn.Module = models.get_model(name, weights=None, **settings)
    return model


def make_small(name: str) -> nn.Module:
    """The same in little memory: all rows of a parameter are one."""
    with WithoutMemory():
        model = make(name)
    for module in model.modules():
        for key, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_meta:
                row = torch.randn(parameter.shape[-1:])
                setattr(module, key, nn.Parameter(row.expand(parameter.shape)))
    return model


def family(name: str, table: dict[str, Any]) -> Any:
    """The entry of a table for a classifier, if there is one."""
    found = [entry for start, entry in table.items() if name.startswith(start)]
    assert len(found) <= 1, name
    return found[0] if found else None


def verdict(model: nn.Module) -> tuple[str | None, tuple[str, ...]]:
    """The layer that is read, and why none is."""
    try:
        return split(model, share=True).layer, ()
    except ModelRefusedError as refusal:
        return None, tuple(str(reason) for reason in refusal.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.list_models(module=models))
def test_a_classifier_gets_a_target_or_a_true_refusal(name: str) -> None:
    torch.manual_seed(0)
    model = make_small(name)
    for training in (False, True):
        layer, reasons = verdict(model.train(training))
        assert layer == family(name, HEADS)
        true = family(name, REFUSED) or ()
        if training:
            true = family(name, TRAINING) or true
        assert len(reasons) == len(true)
        for reason, part in zip(reasons, true, strict=True):
            assert part in reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ["googlenet", "mobilenet_v3_small", "resnet18", "squeezenet1_1"])
def test_the_numbers_in_a_classifier_do_not_matter(name: str) -> None:
    torch.manual_seed(0)
    small, usual = make_small(name), make(name)
    assert [*small.state_dict()] == [*usual.state_dict()]
    for training in (False, True):
        assert verdict(small.train(training)) == verdict(usual.train(training))
