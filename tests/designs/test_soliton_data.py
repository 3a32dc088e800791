from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.designs import Construction, Layer, RobustSoliton, SolitonData
from gradpeel.errors import InputError


@dataclass(frozen=True)
class Listed(RobustSoliton):
    """Hands out given degrees, over and over."""

    degrees: tuple[int, ...] = (1,)

    def draw(self, batch_size: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        del batch_size, rng
        return np.resize(np.array(self.degrees), size)


def _samples(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def _shape(design: SolitonData, neurons: int, features: int, batch_size: int) -> Layer:
    layer = Layer(torch.ones(neurons, features).double(), torch.ones(neurons).double())
    rng = np.random.default_rng(0)
    return design.shape(layer, batch_size=batch_size, rng=rng, front=torch.nn.Flatten())


def _degrees(layer: Layer, rows: Tensor) -> list[int]:
    return (rows @ layer.weight.T + layer.bias > 0).sum(dim=0).tolist()


@settings(deadline=None, max_examples=60)
@given(
    construction=st.sampled_from(["independent", "mirrored"]),
    features=st.integers(2, 30),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 999),
)
def test_degrees_are_exact_on_the_auxiliary_batch(
    construction: Construction, features: int, batch_size: int, seed: int
) -> None:
    auxiliary = _samples(batch_size, features, seed=seed)
    wanted = tuple(range(1, batch_size + 1))  # d = 1 and d = B among them
    design = SolitonData(auxiliary, construction, Listed(degrees=wanted))
    layer = _shape(design, 2 * batch_size, features, batch_size)
    assert _degrees(layer, auxiliary) == list(wanted) * 2


def test_degree_histogram_follows_the_soliton() -> None:
    auxiliary = _samples(16, 40)
    layer = _shape(SolitonData(auxiliary), neurons=4000, features=40, batch_size=16)
    counts = np.bincount(_degrees(layer, auxiliary), minlength=17)[1:]
    probabilities = RobustSoliton().probabilities(16)
    deviations = np.sqrt(4000 * probabilities * (1 - probabilities))
    assert counts.sum() == 4000
    assert (np.abs(counts - 4000 * probabilities) < 4 * deviations).all()


def test_thresholds_lie_midway() -> None:
    auxiliary = _samples(6, 5)
    layer = _shape(SolitonData(auxiliary, soliton=Listed(degrees=(2,))), 9, 5, batch_size=6)
    falling = (auxiliary @ layer.weight.T).sort(dim=0, descending=True).values
    torch.testing.assert_close(-layer.bias, (falling[1] + falling[2]) / 2)


def test_degree_b_leaves_half_a_gap() -> None:
    auxiliary = _samples(6, 5)
    layer = _shape(SolitonData(auxiliary, soliton=Listed(degrees=(6,))), 9, 5, batch_size=6)
    falling = (auxiliary @ layer.weight.T).sort(dim=0, descending=True).values
    torch.testing.assert_close(-layer.bias, falling[5] - (falling[4] - falling[5]) / 2)


@pytest.mark.parametrize(
    ("auxiliary_size", "drawn", "expected"),
    [
        (20, (1, 2, 5, 10), [2, 4, 10, 20]),  # twice the batch
        (4, (1, 2, 5, 6, 9, 10), [1, 1, 2, 2, 4, 4]),  # 0.4, 0.8, 2.0, 2.4, 3.6, 4.0
        (1, (1, 5, 10), [1, 1, 1]),
    ],
)
def test_degrees_are_scaled_to_the_auxiliary_batch(
    auxiliary_size: int, drawn: tuple[int, ...], expected: list[int]
) -> None:
    auxiliary = _samples(auxiliary_size, 12)
    design = SolitonData(auxiliary, soliton=Listed(degrees=drawn))
    layer = _shape(design, len(drawn), 12, batch_size=10)
    assert _degrees(layer, auxiliary) == expected


def test_equal_samples_neither_crash_nor_silence_degree_b() -> None:
    twins = _samples(1, 7).repeat(5, 1)
    design = SolitonData(twins, soliton=Listed(degrees=(1, 5)))
    layer = _shape(design, 2, 7, batch_size=5)
    assert bool(layer.bias.isfinite().all())
    assert _degrees(layer, twins)[1] == 5


def test_auxiliary_is_mapped_by_the_front() -> None:
    images = _samples(8, 3, 4).float()
    layer = Layer(torch.ones(8, 12).double(), torch.ones(8).double())
    shaped = SolitonData(images, soliton=Listed(degrees=tuple(range(1, 9)))).shape(
        layer,
        batch_size=8,
        rng=np.random.default_rng(0),
        front=lambda x: (x.flatten(1) - 0.5) / 0.25,
    )
    rows = (images.double().flatten(1) - 0.5) / 0.25
    assert _degrees(shaped, rows) == list(range(1, 9))


def test_repr_shows_no_values() -> None:
    assert repr(SolitonData(_samples(3, 2), "mirrored")) == (
        "SolitonData(auxiliary=(3, 2), construction='mirrored', "
        "soliton=RobustSoliton(c=0.05, delta=0.4), sigma=0.5)"
    )


def _refuse(x: Tensor) -> Tensor:
    raise InputError("x of shape (2, 3): expected something else")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: SolitonData(torch.zeros(0, 3)),
            "auxiliary of shape (0, 3): expected (batch, *sample_shape), not empty",
        ),
        (
            lambda: SolitonData(torch.zeros(3)),
            "auxiliary of shape (3,): expected (batch, *sample_shape), not empty",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3, dtype=torch.uint8)),
            "auxiliary of dtype torch.uint8: expected floating point, scaled like the batch",
        ),
        (
            lambda: SolitonData(torch.tensor([[0.0, torch.nan]])),
            "auxiliary with NaN or infinite values: expected finite values",
        ),
        (
            lambda: SolitonData(torch.tensor([[0.0, torch.inf]])),
            "auxiliary with NaN or infinite values: expected finite values",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3), cast("Construction", "odd")),
            "construction='odd': expected 'independent' or 'mirrored'",
        ),
        (
            lambda: SolitonData(cast("Tensor", None)),
            "auxiliary of type NoneType: expected a torch.Tensor",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3).to_sparse()),
            "auxiliary: a sparse tensor: expected a dense one, such as to_dense() gives",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3), soliton=cast("RobustSoliton", None)),
            "soliton=None: expected a gradpeel.designs.RobustSoliton",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3), sigma=0.0),
            "sigma=0.0: expected a positive number",
        ),
        (
            lambda: _shape(SolitonData(torch.zeros(2, 3)), 4, 5, batch_size=2),
            "auxiliary of shape (2, 3) gives rows of (2, 3): expected (2, 5) for the target",
        ),
        (
            lambda: SolitonData(torch.zeros(2, 3)).shape(
                Layer(torch.ones(1, 3).double(), torch.ones(1).double()),
                batch_size=2,
                rng=np.random.default_rng(0),
                front=_refuse,
            ),
            "auxiliary: x of shape (2, 3): expected something else",
        ),
        (
            lambda: _shape(SolitonData(torch.zeros(2, 3)), 4, 3, batch_size=0),
            "batch_size=0: expected a positive integer",
        ),
    ],
)
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
