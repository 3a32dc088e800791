"""The simulated client against autograd, and its digits against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradpeel.client import gradients
from gradpeel.decoder.backward import Backward, Simulated
from gradpeel.losses import CrossEntropy
from gradpeel.target import Tail, split
from support import SmallRound, make_batch, make_model, round_of
from truth import Truth

TAILS: dict[str, Callable[[], list[nn.Module]]] = {
    "one layer": lambda: [nn.Linear(30, 5)],
    "no bias": lambda: [nn.Linear(30, 5, bias=False)],
    "deep": lambda: [nn.Linear(30, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)],
    "smooth": lambda: [nn.Linear(30, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 5)],
    "behind": lambda: [nn.Linear(30, 5), nn.Tanh()],
    "no next layer": lambda: [nn.LayerNorm(30), nn.Linear(30, 5)],
    "nothing but a norm": lambda: [nn.LayerNorm(30)],
}


def round_with(tail: str, *, seed: int = 0, batch: int = 6) -> SmallRound:
    torch.manual_seed(seed)
    body = make_model(10, 30, 5, seed=seed)
    model = nn.Sequential(body[0], body[1], *TAILS[tail]()).double()
    x, y = make_batch(10, batch, 5, seed=seed)
    return round_of(model, x, y)


def simulated(round_: SmallRound, unit_error: Tensor | None = None) -> tuple[Simulated, Truth]:
    truth = Truth.of(round_)
    backward = truth.backward(round_, unit_error)
    return backward.simulate(truth.z.relu(), truth.counts), truth


@pytest.mark.parametrize("tail", TAILS)
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_gradients_are_those_of_autograd(tail: str, seed: int) -> None:
    found, truth = simulated(round_with(tail, seed=seed))
    torch.testing.assert_close(found.c * (truth.z > 0), truth.c, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.v, truth.v, rtol=1e-9, atol=1e-12)
    assert found.v.shape[1] == (0 if truth.target.tail.next_layer is None else truth.v.shape[1])


def test_samples_are_weighted_as_in_the_batch_loss() -> None:
    round_ = round_with("deep")
    truth = Truth.of(round_)
    backward = truth.backward(round_)
    whole, part = (
        replace(backward, share=share).simulate(truth.z.relu(), truth.counts)
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
        one = slice(i, i + 1)
        alone = truth.backward(round_).simulate(truth.z[one].relu(), truth.counts[one])
        torch.testing.assert_close(alone.c[0], found.c[i])
        torch.testing.assert_close(alone.response[0], found.response[i])


def test_nobody_can_be_simulated() -> None:
    tail = split(make_model(10, 30, 5)).tail
    nobody = torch.zeros(0, 30, dtype=torch.float64)
    backward = Backward(tail, CrossEntropy(), 1.0, torch.ones(30).double(), 5)
    found = backward.simulate(nobody, nobody[:, :5])
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
        again = truth.backward(round_, signs).simulate(moved, truth.counts)
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
        gradient=torch.tensor([[-1.0, 0.5], [1e-7, -1e-6]]),
        counts=torch.eye(2),
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
    backward = Backward(tail, CrossEntropy(), 1.0, torch.ones(count).double(), count)
    found = backward.simulate(activations, torch.eye(count).double()[label : label + 1])
    expected = exact_softmax_gradient(logits, label)
    assert found.v[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert found.c[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert float(found.margin[0]) == pytest.approx(max(map(abs, expected)), rel=1e-12)
    assert bool(found.response.isfinite().all())


LOSSES = {
    "plain": CrossEntropy(),
    "smoothed": CrossEntropy(label_smoothing=0.2),
    "weighted": CrossEntropy(class_weights=(1.0, 0.2, 3.0, 1.5, 0.7)),
    "both": CrossEntropy(label_smoothing=0.1, class_weights=(1.0, 0.2, 3.0, 1.5, 0.7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["one layer", "smooth", "no next layer"])
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15)
@given(data=st.data())
def test_copies_add_up_to_one_gradient(tail: str, loss: str, data: st.DataObject) -> None:
    # A sample with any number of copies of each label against a batch of just these.
    round_ = round_with(tail, seed=data.draw(st.integers(0, 1000)), batch=1)
    truth = Truth.of(round_)
    classes = truth.counts.shape[1]
    copies = data.draw(st.lists(st.integers(0, 3), min_size=classes, max_size=classes).filter(any))
    counts = torch.tensor([copies])
    backward = replace(truth.backward(round_), loss=LOSSES[loss], share=0.1)
    found = backward.simulate(truth.z.relu(), counts.double())
    labels = torch.arange(classes).repeat_interleave(counts[0])
    batch = round_.x.expand(len(labels), -1)
    sent = gradients(round_.model, batch, labels, share=0.1, loss=LOSSES[loss])
    c = (found.c * (truth.z > 0))[0]
    torch.testing.assert_close(c, sent["0.bias"], rtol=1e-9, atol=1e-12)
    if found.v.shape[1]:
        torch.testing.assert_close(
            truth.z.relu()[0, :, None] * found.v, sent["2.weight"].T, rtol=1e-9, atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("loss", LOSSES)
def test_bias_entries_are_those_of_every_label(tail: str, loss: str) -> None:
    round_ = round_with(tail)
    truth = Truth.of(round_)
    classes = truth.counts.shape[1]
    weights = LOSSES[loss].class_weights
    chosen = LOSSES[loss]
    if weights is not None:
        chosen = replace(chosen, class_weights=(weights * 6)[:classes])
    backward = replace(truth.backward(round_), loss=chosen, share=0.25)
    neurons = truth.z.argmax(1)
    activations = truth.z.relu()
    entries = 0.25 * backward.bias_entries(activations, neurons)
    for label in range(classes):
        counts = torch.zeros_like(truth.counts)
        counts[:, label] = 1.0
        c = backward.simulate(activations, counts).c
        own = c.gather(1, neurons[:, None])[:, 0]
        torch.testing.assert_close(entries[:, label], own, rtol=1e-9, atol=1e-13)
        # One label for each, the one whose entry it is.
        bias = torch.zeros(30).double()
        for i, neuron in enumerate(neurons.tolist()):
            bias[neuron] = own[i]
            found = backward.glance(activations[[i]], neurons[[i]], bias).counts
            assert found.shape == (1, classes)
            assert found.sum() == 1
            gap = (entries[i] - own[i]).abs()
            assert gap[int(found.argmax())] <= gap.min() + 1e-15


def test_one_sample_with_every_label() -> None:
    round_ = round_with("deep")
    truth = Truth.of(round_)
    backward = truth.backward(round_)
    each = backward.one_of_each(truth.z.relu())
    assert each.shape == (len(truth.z), 5, 12)
    every = torch.arange(len(truth.z))
    torch.testing.assert_close(each[every, round_.y], truth.v)


@pytest.mark.parametrize("tail", ["one layer", "no bias", "deep", "smooth", "behind"])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_at_the_logits_follows_from_that_at_the_next_layer(
    tail: str, seed: int
) -> None:
    round_ = round_with(tail, seed=seed)
    truth = Truth.of(round_)
    backward = truth.backward(round_)
    activations = truth.z.relu()
    p, g = backward.at_logits(activations, truth.v)
    torch.testing.assert_close(p, torch.softmax(truth.target.tail(activations), 1))
    layer = truth.target.tail.next_layer
    assert layer is not None
    entered = layer(activations)
    v = torch.func.vjp(truth.target.tail.rest, entered)[1](g)[0] * backward.share
    torch.testing.assert_close(v, truth.v, rtol=1e-7, atol=1e-9)
    # Where too few neurons of a hidden layer fire, several gradients come out as the same v.
    jacobians = [torch.func.jacrev(truth.target.tail.rest)(row) for row in entered]
    clear = torch.tensor([int(torch.linalg.matrix_rank(one)) == 5 for one in jacobians])
    assert bool(clear.any()) or tail == "deep"
    exact = p - truth.counts
    torch.testing.assert_close(g[clear], exact[clear], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("tail", "last"),
    [
        ("one layer", True),
        ("no bias", True),
        ("deep", False),
        ("smooth", False),
        ("behind", False),
        ("no next layer", False),
    ],
)
def test_whether_the_next_layer_is_the_last(tail: str, *, last: bool) -> None:
    round_ = round_with(tail)
    assert Truth.of(round_).backward(round_).ends_at_next_layer == last
