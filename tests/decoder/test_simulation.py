"""The simulated client against autograd, and its digits against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.client import local_update
from gradpeel.decoder.simulation import Probe, Simulated, simulate
from gradpeel.target import Tail, split
from support import SmallRound, make_batch, make_model
from truth import Truth

TAILS: dict[str, Callable[[], list[nn.Module]]] = {
    "one layer": lambda: [nn.Linear(30, 5)],
    "no bias": lambda: [nn.Linear(30, 5, bias=False)],
    "deep": lambda: [nn.Linear(30, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)],
    "smooth": lambda: [nn.Linear(30, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 5)],
    "no next layer": lambda: [nn.LayerNorm(30), nn.Linear(30, 5)],
    "nothing but a norm": lambda: [nn.LayerNorm(30)],
}


def round_with(tail: str, *, seed: int = 0, batch: int = 6) -> SmallRound:
    torch.manual_seed(seed)
    body = make_model(10, 30, 5, seed=seed)
    model = nn.Sequential(body[0], body[1], *TAILS[tail]()).double()
    x, y = make_batch(10, batch, 5, seed=seed)
    return SmallRound(model, x, y, local_update(model, x, y))


def simulated(round_: SmallRound, unit_error: Tensor | None = None) -> tuple[Simulated, Truth]:
    truth = Truth.of(round_)
    error = torch.ones_like(truth.z[0]) if unit_error is None else unit_error
    probe = Probe(round_.update.share, error)
    return simulate(truth.target.tail, truth.z.relu(), round_.y, probe), truth


@pytest.mark.parametrize("tail", TAILS)
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_gradients_are_those_of_autograd(tail: str, seed: int) -> None:
    found, truth = simulated(round_with(tail, seed=seed))
    torch.testing.assert_close(found.c * (truth.z > 0), truth.c, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.v, truth.v, rtol=1e-9, atol=1e-12)
    assert found.v.shape[1] == (0 if truth.target.tail.next_layer is None else truth.v.shape[1])
    assert found.classes == truth.target.tail(truth.z.relu()).shape[1]


def test_samples_are_weighted_as_in_the_batch_loss() -> None:
    round_ = round_with("deep")
    truth = Truth.of(round_)
    whole, part = (
        simulate(truth.target.tail, truth.z.relu(), round_.y, Probe(share, torch.ones(30).double()))
        for share in (1.0, 0.25)
    )
    torch.testing.assert_close(whole.c / 4, part.c)
    torch.testing.assert_close(whole.v / 4, part.v)
    # Relative quantities know nothing of the weight.
    assert torch.equal(whole.margin, part.margin)
    assert torch.equal(whole.response, part.response)


def test_samples_do_not_see_each_other() -> None:
    round_ = round_with("deep")
    found, truth = simulated(round_)
    for i in range(len(round_.x)):
        alone = simulate(
            truth.target.tail,
            truth.z[i : i + 1].relu(),
            round_.y[i : i + 1],
            Probe(round_.update.share, torch.ones(30).double()),
        )
        torch.testing.assert_close(alone.c[0], found.c[i])
        torch.testing.assert_close(alone.response[0], found.response[i])


def test_nobody_can_be_simulated() -> None:
    target = split(make_model(10, 30, 5))
    nobody = torch.zeros(0, 30, dtype=torch.float64)
    probe = Probe(1.0, torch.ones(30).double())
    found = simulate(target.tail, nobody, torch.zeros(0, dtype=torch.long), probe)
    assert found.c.shape == (0, 30)
    assert found.v.shape == (0, 5)


def logit_gradient(truth: Truth, activations: Tensor, labels: Tensor) -> Tensor:
    logits = truth.target.tail(activations)
    return torch.softmax(logits, 1) - nn.functional.one_hot(labels, logits.shape[1])


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("seed", range(3))
def test_the_response_is_the_change_of_the_loss_gradient(tail: str, seed: int) -> None:
    round_ = round_with(tail, seed=seed)
    signs = torch.randn(30, generator=torch.Generator().manual_seed(seed)).double().sign()
    found, truth = simulated(round_, unit_error=0.7 * signs)
    a = truth.z.relu()
    step = 1e-6
    moved = logit_gradient(truth, a + step * 0.7 * signs * (a > 0), round_.y)
    change = (moved - logit_gradient(truth, a, round_.y)).abs().amax(1) / step
    torch.testing.assert_close(found.response * found.margin, change, rtol=1e-4, atol=1e-7)
    margin = logit_gradient(truth, a, round_.y).abs().amax(1)
    torch.testing.assert_close(found.margin, margin)


@pytest.mark.parametrize("tail", TAILS)
def test_the_response_foretells_what_an_inexact_sample_does_to_its_gradient(tail: str) -> None:
    # The error said for v and c is measured along one random direction; any other is like it.
    ratios = []
    for seed in range(10):
        round_ = round_with(tail, seed=seed)
        signs = torch.randn(30, generator=torch.Generator().manual_seed(seed)).double().sign()
        found, truth = simulated(round_, unit_error=signs)
        off = 1e-7
        noise = torch.randn(truth.z.shape, generator=torch.Generator().manual_seed(seed + 50))
        moved = (truth.z + off * noise.double()).relu() * (truth.z > 0)
        probe = Probe(round_.update.share, signs)
        again = simulate(truth.target.tail, moved, round_.y, probe)
        expected = found.error(torch.full((len(round_.x),), off).double(), 2**-52)
        size = found.c.square().mean(1).sqrt()
        change = (again.c - found.c).square().mean(1).sqrt() / size
        ratios.append(change / expected)
    ratio = torch.cat(ratios)
    # Where the tail is curved the way back changes too, not the logits alone.
    assert 0.3 < float(ratio.median()) < (8.0 if tail == "smooth" else 3.0)


def test_the_error_adds_up_response_and_rounding() -> None:
    found = Simulated(
        v=torch.zeros(2, 0),
        c=torch.zeros(2, 3),
        response=torch.tensor([2.0, 0.0]),
        margin=torch.tensor([1.0, 1e-6]),
        classes=2,
    )
    error = found.error(torch.tensor([1e-5, 1e-5]), 1e-8)
    assert error.tolist() == pytest.approx([2e-5 + 2e-8, 1e-8 + 1e-2])


def exact_softmax_gradient(logits: list[int], label: int) -> list[float]:
    """p - e_y with fifty digits."""
    with localcontext() as context:
        context.prec = 50
        powers = [Decimal(logit).exp() for logit in logits]
        total = sum(powers)
        others = sum(power for k, power in enumerate(powers) if k != label)
        return [float((-others if k == label else power) / total) for k, power in enumerate(powers)]


@pytest.mark.parametrize(
    ("logits", "label"),
    [
        ([0, 0], 0),
        ([3, 5], 1),
        ([40, 0], 0),  # 1 - p is 4e-18: in float64, p itself is 1
        ([40, 0], 1),
        ([0, 300], 1),
        ([700, 0], 0),
        ([700, 0], 1),
        ([50, 49, 10, 0], 0),
        ([50, 1, 10, 0], 0),
        ([50, 1, 10, 0], 3),
        ([1, 1, 60, 1], 2),
    ],
)
def test_certain_samples_keep_their_digits(logits: list[int], label: int) -> None:
    count = len(logits)
    layer = nn.Linear(count, count, bias=False).double().requires_grad_(requires_grad=False)
    layer.weight.copy_(torch.eye(count))
    tail = Tail(nn.Identity(), next_layer=layer, next_weight_name="2.weight")
    activations = torch.tensor([logits], dtype=torch.float64)
    probe = Probe(1.0, torch.ones(count).double())
    found = simulate(tail, activations, torch.tensor([label]), probe)
    expected = exact_softmax_gradient(logits, label)
    assert found.v[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert found.c[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert float(found.margin[0]) == pytest.approx(max(map(abs, expected)), rel=1e-12)
    assert bool(found.response.isfinite().all())
