"""What all designs share: the layer they shape, the words they carry, purity."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradpeel.designs import PAPER_METHODS, Design, DesignOptions, Layer, RobustSoliton
from gradpeel.designs.options import DesignName
from gradpeel.errors import InputError

LABELS = ["SF-Ind", "SF-Mir", "SD-Ind", "SD-Mir", "TW-Ind", "TW-Mir", "Passive"]
OTHERS = {one.label: one for one in map(DesignOptions, DesignName) if one.label not in LABELS}
METHODS = {**PAPER_METHODS, **OTHERS}


def _layer(neurons: int, features: int) -> Layer:
    return Layer(torch.ones(neurons, features).double(), torch.ones(neurons).double())


def test_paper_methods_follow_the_table() -> None:
    assert list(PAPER_METHODS) == LABELS
    made = {label: method.build(torch.rand(4, 3)) for label, method in PAPER_METHODS.items()}
    assert [made[label].weights for label in LABELS] == [
        *["independent", "mirrored"] * 3,
        "gaussian",
    ]
    assert [label for label in LABELS if not made[label].active] == ["Passive"]
    for label in LABELS[:4]:
        settings_of = vars(made[label])
        assert settings_of["soliton"] == RobustSoliton(0.05, 0.4)
    assert vars(made["TW-Mir"])["scale"] == 0.99
    assert all(vars(design)["sigma"] == 0.5 for design in made.values())


@pytest.mark.parametrize("label", METHODS)
def test_a_design_is_an_immutable_value_with_words(label: str) -> None:
    design = METHODS[label].build(torch.rand(4, 3))
    assert design.adversary.startswith("a server that ")
    assert design.name.replace("-", "") in repr(design).lower()
    field = dataclasses.fields(design)[-1].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(design, field, 1.0)


@settings(deadline=None, max_examples=60)
@given(
    label=st.sampled_from(list(METHODS)),
    neurons=st.integers(1, 12),
    features=st.integers(1, 9),
    batch_size=st.integers(1, 6),
    auxiliary=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_every_design_handles_every_small_shape(
    *, label: str, neurons: int, features: int, batch_size: int, auxiliary: int, seed: int
) -> None:
    data = torch.rand(auxiliary, features, generator=torch.Generator().manual_seed(seed))
    design = METHODS[label].build(data)
    layer = _layer(neurons, features)
    before = torch.random.get_rng_state()

    def shape() -> Layer:
        rng = np.random.default_rng(seed)
        return design.shape(layer, batch_size=batch_size, rng=rng, front=torch.nn.Flatten())

    first, second = shape(), shape()
    assert first.weight.shape == (neurons, features)
    assert bool(first.weight.isfinite().all())
    assert bool(first.bias.isfinite().all())
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)
    assert torch.equal(layer.weight, torch.ones(neurons, features).double())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_other_seeds_give_other_layers() -> None:
    def shape(design: Design, seed: int) -> Layer:
        rng = np.random.default_rng(seed)
        return design.shape(_layer(5, 4), batch_size=4, rng=rng, front=torch.nn.Flatten())

    for method in METHODS.values():
        design = method.build(torch.rand(4, 4))
        assert not torch.equal(shape(design, 0).weight, shape(design, 1).weight)


double = torch.float64


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (
            torch.zeros(3, dtype=double),
            torch.zeros(3, dtype=double),
            "weight of shape (3,): expected (neurons, features), not empty",
        ),
        (
            torch.zeros(0, 3, dtype=double),
            torch.zeros(0, dtype=double),
            "weight of shape (0, 3): expected (neurons, features), not empty",
        ),
        (
            torch.zeros(3, 2, dtype=double),
            torch.zeros(2, dtype=double),
            "bias of shape (2,): expected (3,)",
        ),
        (
            torch.zeros(3, 2),
            torch.zeros(3, dtype=double),
            "weight of dtype torch.float32: expected torch.float64",
        ),
        (
            torch.zeros(3, 2, dtype=double),
            torch.zeros(3),
            "bias of dtype torch.float32: expected torch.float64",
        ),
    ],
)
def test_layer_errors(weight: torch.Tensor, bias: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Layer(weight, bias)
    assert str(caught.value) == message
