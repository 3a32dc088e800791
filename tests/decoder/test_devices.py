"""Where the decoder computes: every tensor on the device of the update, results on the CPU."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from gradpeel.decoder import Recovery, peel
from gradpeel.device import DEVICES, choose, with_float64
from gradpeel.errors import InputError
from gradpeel.noise import with_noise
from gradpeel.update import Update
from support import make_round


def same(one: Recovery, other: Recovery) -> None:
    for field in fields(Recovery):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, Tensor):
            assert torch.equal(first, second), field.name


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False], ids=["tail", "no tail"])
@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("hidden", [(), (20,)], ids=["one layer", "deep"])
@pytest.mark.parametrize("features", [20, 220], ids=["input space", "neuron space"])
def test_no_tensor_is_made_on_the_default_device(
    features: int, hidden: tuple[int, ...], noise: float, *, known: bool
) -> None:
    # There may be no other device at hand. But whatever does not say where it belongs lands on the
    # default device, and one that holds no values gives it away.
    round_ = make_round(features, 200, 14, 5, hidden)
    update = with_noise(round_.update, noise, seed=0) if noise else round_.update
    stated = [update, Update(update.gradients, None)]
    plain = [peel(round_.model, sent, knows_tail=known) for sent in stated]
    assert all(len(recovery) for recovery in plain)
    with torch.device("meta"):
        again = [peel(round_.model, sent, knows_tail=known) for sent in stated]
    for one, other in zip(plain, again, strict=True):
        same(one, other)


def test_a_device_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("cpu") == choose(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose("auto") == choose("cuda") == torch.device("cuda")
    assert choose("cuda:1") == torch.device("cuda:1")
    assert choose("mps") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choose("auto") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose("auto") == torch.device("cpu")


def test_a_device_without_float64_leaves_it_to_the_cpu() -> None:
    assert with_float64(torch.device("mps")) == torch.device("cpu")
    for name in ("cpu", "cuda", "cuda:1"):
        assert with_float64(torch.device(name)) == torch.device(name)


@pytest.mark.parametrize("name", ["", "gpu", "meta", "xpu", "cuda:x"])
def test_an_unknown_device_is_named(name: str) -> None:
    with pytest.raises(InputError, match=f"device='{name}': expected one of {', '.join(DEVICES)}"):
        choose(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps"])
def test_a_device_that_is_not_here_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    round_ = make_round()
    with pytest.raises(InputError, match=f"device='{name}': this machine has none"):
        peel(round_.model, round_.update, device=name)
