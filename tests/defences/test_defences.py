"""Every defence: what it does to an update, what survives it, and no false certificates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.defences import (
    Bfloat16,
    Defence,
    Float16,
    Guard,
    Int8,
    Noise,
    PerExampleClipping,
    RelativeNoise,
    Sign,
    TopK,
    UpdateClipping,
    epsilon_of_release,
    epsilon_of_run,
    parse,
    spell,
)
from gradpeel.errors import InputError
from gradpeel.gradients import gradients

EVERY: tuple[Defence, ...] = (
    PerExampleClipping(0.1),
    PerExampleClipping(0.5, 0.01),
    UpdateClipping(0.1),
    Noise(1e-4),
    RelativeNoise(1e-3),
    TopK(0.5),
    Sign(),
    Int8(),
    Bfloat16(),
    Float16(),
    Guard(),
)


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 150), nn.ReLU(), nn.Linear(150, 3)).double()


def _batch(size: int = 12) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    x = torch.rand(size, 40, generator=source, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=source)


def _audit(*defences: Defence, effort: float = 0.0) -> gp.Audit:
    client, attacker = gp.Client(defences=defences), gp.Attacker(effort=effort)
    return gp.audit(_network(), *_batch(), client=client, attacker=attacker)


@pytest.mark.parametrize("defence", EVERY, ids=str)
def test_nothing_false_is_certified(defence: Defence) -> None:
    found = _audit(defence)
    assert found.score.false_certificates == 0
    assert found.wrong_memberships == 0
    assert found.as_dict()["defences"] == [str(defence)]
    if defence in (PerExampleClipping(0.1), UpdateClipping(0.1)):
        assert found.score.recovered == 12
    else:
        assert found.score.recovered == 0


@pytest.mark.parametrize("defence", EVERY, ids=str)
def test_a_defence_is_spelt_as_it_is_parsed(defence: Defence) -> None:
    assert parse(str(defence)) == (defence,)
    assert spell(parse(f"clip:2+{defence}" if not str(defence).startswith("dp") else str(defence)))


@pytest.mark.parametrize("defence", EVERY, ids=str)
def test_the_same_seed_gives_the_same_update(defence: Defence) -> None:
    client = gp.Client(defences=[defence])
    model, (x, y) = _network(), _batch()
    first, second = (gp.local_update(model, x, y, client, seed=3) for _ in range(2))
    other = gp.local_update(model, x, y, client, seed=4)
    for name, gradient in first.gradients.items():
        assert torch.equal(gradient, second.gradients[name])
    is_drawn = isinstance(defence, Noise | RelativeNoise) or bool(getattr(defence, "noise", False))
    same = all(torch.equal(g, other.gradients[n]) for n, g in first.gradients.items())
    assert same != bool(is_drawn)


def test_per_example_clipping_is_what_a_loop_says() -> None:
    model, (x, y) = _network(), _batch()
    update = gp.local_update(model, x, y, gp.Client(defences=[PerExampleClipping(0.3)]))
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for i in range(len(x)):
        own = gradients(model, x[i : i + 1], y[i : i + 1], share=1.0)
        size = torch.cat([g.flatten() for g in own.values()]).norm()
        for name, g in own.items():
            total[name] += g * min(1.0, 0.3 / float(size)) / len(x)
    for name, value in total.items():
        assert torch.allclose(update.gradients[name], value.detach(), atol=1e-12)
    assert not update.equal_weights


def test_noise_of_dp_has_its_size() -> None:
    model, (x, y) = _network(), _batch()
    plain, noisy = (
        gp.local_update(model, x, y, gp.Client(defences=[PerExampleClipping(0.3, noise)]))
        for noise in (0.0, 2.0)
    )
    gap = noisy.gradients["0.weight"] - plain.gradients["0.weight"]
    assert float(gap.std()) == pytest.approx(2.0 * 0.3 / 12, rel=0.05)


def test_clipping_in_every_local_step() -> None:
    client = gp.Client(lr=0.1, local_steps=3, defences=[PerExampleClipping(1e-3)])
    update = gp.local_update(_network(), *_batch(), client)
    size = torch.cat([g.flatten() for g in update.gradients.values()]).norm()
    assert 0 < float(size) <= 3e-3 + 1e-9


def test_batch_norm_in_training_has_no_gradient_per_sample() -> None:
    model = nn.Sequential(nn.Linear(40, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 3))
    with pytest.raises(InputError, match="'1' is batch norm in training mode"):
        gp.local_update(model, *_batch(), gp.Client(defences=[PerExampleClipping()]))


def test_half_precision_is_stated_by_the_dtype() -> None:
    model, (x, y) = _network(), _batch()
    for defence, dtype in ((Bfloat16(), torch.bfloat16), (Float16(), torch.float16)):
        assert gp.local_update(model, x, y, gp.Client(defences=[defence])).dtype == dtype


def test_a_function_is_a_defence() -> None:
    def double(update: gp.Update) -> gp.Update:
        return replace(update, gradients={n: 2 * g for n, g in update.gradients.items()})

    model, (x, y) = _network(), _batch()
    client = gp.Client(defences=[double])
    plain, doubled = gp.local_update(model, x, y), gp.local_update(model, x, y, client)
    assert torch.equal(doubled.gradients["0.bias"], 2 * plain.gradients["0.bias"])
    count: Any = lambda update: len(update.gradients)  # noqa: E731
    with pytest.raises(InputError, match="transform=<lambda>: returned int"):
        gp.local_update(model, x, y, gp.Client(defences=[count]))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("clip:1", "expected a list of gradpeel.defences"),
        ([Sign], "expected a value of gradpeel.defences"),
        ([3], "expected a value of gradpeel.defences"),
        ([Sign(), PerExampleClipping()], "per-example clipping happens first"),
    ],
)
def test_what_is_no_defence_is_refused(given: object, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        gp.Client(defences=given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "expected none or some of"),
        ("clip", "expected clip with 1 value"),
        ("sign:1", "expected sign with no value"),
        ("dp:1,2,3", "expected dp with 1 to 2 values"),
        ("top-k:x", "expected numbers after the colon"),
        ("top-k:0", "share=0.0: expected a number above 0"),
        ("clip:-1", "norm=-1.0: expected a number above 0"),
        ("noise:nan", "deviation=nan: expected a number of at least 0"),
        ("guard:1", "apart=1.0: expected a number from 0 to below 1"),
    ],
)
def test_a_wrong_text_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        parse(text)


def test_epsilon_of_a_release_is_exact() -> None:
    # The noise that makes (1, 1e-5) for sensitivity 1, by Balle and Wang's own program.
    assert epsilon_of_release(3.730632, 1e-5) == pytest.approx(1.0, abs=1e-4)
    assert epsilon_of_release(1e-9, 1e-5) == epsilon_of_release(0.0, 1e-5) == float("inf")
    assert epsilon_of_release(1e6, 1e-5) == 0.0


def test_epsilon_of_a_run_grows_with_steps_and_bounds_one_release() -> None:
    found = [epsilon_of_run(1.0, 1e-5, steps=n, sample_rate=0.02) for n in (1, 10, 100, 1000)]
    assert found == sorted(found)
    whole = epsilon_of_run(1.0, 1e-5, steps=1, sample_rate=1.0)
    assert epsilon_of_release(1.0, 1e-5) <= whole <= 1.2 * epsilon_of_release(1.0, 1e-5)
    with pytest.raises(InputError, match="sample_rate=0"):
        epsilon_of_run(1.0, 1e-5, steps=1, sample_rate=0)
