"""Every classifier of torchvision is split, or refused with reasons that are about it."""

from __future__ import annotations

import pytest
from torch import nn

from gradpeel.errors import ModelRefusedError
from gradpeel.target import split

models = pytest.importorskip("torchvision.models")

LARGEST = 60_000_000
"""Parameters of the largest that is made here."""

# Classifiers whose head has ReLU, or an activation with a threshold, and the layer that is read.
HEADS = {"alexnet": "classifier.1", "mobilenet_v3_large": "classifier.0"}
HEADS |= {"mobilenet_v3_small": "classifier.0"}


def names() -> list[str]:
    listed: list[str] = models.list_models(module=models)
    return [
        name
        for name in listed
        if models.get_model_weights(name).DEFAULT.meta["num_params"] < LARGEST or name in HEADS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", names())
def test_a_classifier_gets_a_target_or_a_true_refusal(name: str, training: bool) -> None:
    settings = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    model: nn.Module = models.get_model(name, weights=None, **settings).train(training)
    linears = {f"'{n}'" for n, module in model.named_modules() if isinstance(module, nn.Linear)}
    try:
        target = split(model, share=True)
    except ModelRefusedError as refusal:
        assert name not in HEADS
        for reason in refusal.reasons:
            about = any(linear in str(reason) for linear in linears) or not linears
            assert about or "returns a" in str(reason)
        return
    assert target.layer == HEADS.get(name, target.layer)
    assert f"'{target.layer}'" in linears
