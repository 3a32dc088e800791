"""Noise: as strong as said, once rounded, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradpeel.checks import DTYPES
from gradpeel.errors import InputError
from gradpeel.noise import with_noise
from gradpeel.update import Update
from support import make_round


def drawn(dtype: torch.dtype = torch.float64, seed: int = 0, size: int = 40_000) -> Update:
    generator = torch.Generator().manual_seed(seed)
    scales = {"0.weight": 5.0, "0.bias": 1e-3, "2.weight": 40.0}
    gradients = {
        name: (scale * torch.randn(size, generator=generator) + 3 * scale).to(dtype)
        for name, scale in scales.items()
    }
    return Update(gradients, 4)


def change(noisy: Update, update: Update) -> dict[str, torch.Tensor]:
    return {name: noisy.gradients[name] - exact for name, exact in update.gradients.items()}


@pytest.mark.parametrize("sigma", [1e-8, 1e-4, 0.1, 3.0])
def test_each_tensor_gets_noise_of_its_own_size(sigma: float) -> None:
    update = drawn()
    for name, noise in change(with_noise(update, sigma), update).items():
        spread = float(update.gradients[name].std())
        assert float(noise.std()) == pytest.approx(sigma * spread, rel=0.02)
        assert abs(float(noise.mean())) < 4 * sigma * spread / len(noise) ** 0.5
        # Gaussian, not only of that size: 0.27 % lie beyond three standard deviations.
        assert float((noise.abs() > 3 * noise.std()).double().mean()) == pytest.approx(
            0.0027, abs=0.001
        )


def test_tensors_get_noise_of_their_own() -> None:
    noise = change(with_noise(drawn(), 0.1), drawn())
    one, other = noise["0.weight"], noise["2.weight"]
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.02


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rounded_once(dtype: torch.dtype) -> None:
    update = drawn(dtype, size=500)
    wide = replace(update, gradients={n: g.double() for n, g in update.gradients.items()})
    for name, noisy in with_noise(update, 0.1).gradients.items():
        assert noisy.dtype == dtype
        assert torch.equal(noisy, with_noise(wide, 0.1).gradients[name].to(dtype))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**63 - 1), other=st.integers(0, 2**63 - 1), data=st.data())
def test_a_seed_names_the_noise(seed: int, other: int, data: st.DataObject) -> None:
    update = drawn(size=5)
    before = torch.get_rng_state()
    one = with_noise(update, 0.1, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    # A file may list the gradients in another order.
    names = data.draw(st.permutations(list(update.gradients)))
    shuffled = replace(update, gradients={name: update.gradients[name] for name in names})
    same = with_noise(shuffled, 0.1, seed=seed)
    assert list(same.gradients) == names
    for name, gradient in one.gradients.items():
        assert torch.equal(gradient, same.gradients[name])
        if other != seed:
            assert not torch.equal(gradient, with_noise(update, 0.1, seed=other).gradients[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_noise_changes_nothing(dtype: torch.dtype) -> None:
    update = make_round(dtype=dtype).update
    for name, gradient in with_noise(update, 0.0).gradients.items():
        assert torch.equal(gradient, update.gradients[name])


def test_the_round_stays_what_it_was_and_so_does_the_update() -> None:
    gradient = torch.tensor([1.0, 2.0])
    for size in (None, 7):
        noisy = with_noise(Update({"a": gradient}, size, "sum"), 0.5)
        assert (noisy.batch_size, noisy.reduction) == (size, "sum")
    assert gradient.tolist() == [1.0, 2.0]


def test_values_without_spread_stay_as_they_are() -> None:
    update = Update({"one": torch.tensor([3.0]), "alike": torch.ones(4), "none": torch.ones(0)}, 4)
    for name, gradient in with_noise(update, 10.0).gradients.items():
        assert torch.equal(gradient, update.gradients[name])


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: with_noise(drawn(), -1e-9), "sigma=-1e-09: expected a number of at least 0"),
    (lambda: with_noise(drawn(), float("nan")), "sigma=nan: expected a number of at least 0"),
    (lambda: with_noise(drawn(), float("inf")), "sigma=inf: expected a number of at least 0"),
    (lambda: with_noise(drawn(), None), "sigma=None: expected a number of at least 0"),  # type: ignore[arg-type]
    (
        lambda: with_noise(None, 1.0),  # type: ignore[arg-type]
        "update of type NoneType: expected gradpeel.Update",
    ),
    (lambda: with_noise(drawn(), 1.0, seed=-1), "seed=-1: expected an integer of at least 0"),
    (
        lambda: with_noise(Update({"a": torch.tensor([0.0, 6e4]).half()}, 2), 100.0),
        "update: a: 2 of 2 values are not finite",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
