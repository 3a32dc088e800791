"""Tails, fronts and losses at their edges: what a faster way must not take for granted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradpeel import Attacker, Client
from gradpeel.audit import audit
from gradpeel.client import local_update
from gradpeel.decoder import peel
from gradpeel.designs import Passive
from gradpeel.losses import CrossEntropy
from gradpeel.networks import mlp
from gradpeel.target import split
from support import make_batch, truths_of


class Clamped(nn.Module):
    """Logits that cannot grow beyond a bound."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.clamp(-3.0, 3.0)


@pytest.mark.parametrize("last", [nn.Hardtanh(-2.0, 2.0), Clamped(), nn.Identity(), nn.Softsign()])
def test_a_tail_that_is_nearly_nothing_is_simulated(last: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(60, 120), nn.ReLU(), nn.Linear(120, 4), last).double()
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(12.0)
    x, y = make_batch(60, 5, 4)
    assert float(model[:3](x).detach().abs().max()) > 2.0
    recovery = peel(model, local_update(model, x, y))
    assert recovery.complete
    assert sorted(truths_of(recovery.samples, x)) == list(range(5))


def test_an_empty_look_at_a_tail_that_takes_no_empty_batch() -> None:
    class Reshaping(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return rows.view(rows.size(0), -1)

    torch.manual_seed(0)
    tail = [nn.Linear(30, 12), nn.ReLU(), Reshaping(), nn.Linear(12, 4)]
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), *tail).double()
    x, y = make_batch(40, 25, 4)
    assert peel(model, local_update(model, x, y)).batch_size.value == 25


def test_what_is_learned_in_front_does_not_speak_against_completeness() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(40)
    with torch.no_grad():
        norm.running_mean, norm.running_var = torch.rand(40), torch.rand(40) + 0.5
        norm.weight.copy_(torch.rand(40) + 0.5)
        norm.bias.copy_(torch.rand(40))
    model = nn.Sequential(norm, nn.Linear(40, 100), nn.ReLU(), nn.Linear(100, 4)).double().eval()
    x, y = make_batch(40, 4, 4)
    update = local_update(model, x, y)
    assert float(update.gradients["0.weight"].norm()) > 0
    recovery = peel(model, update)
    assert recovery.complete
    assert sorted(truths_of(recovery.samples, x)) == list(range(4))


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_labels_that_weigh_nothing(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    behind = [part for width in hidden for part in (nn.Linear(80, width), nn.ReLU())]
    model = nn.Sequential(
        nn.Linear(60, 80), nn.ReLU(), *behind, nn.Linear(hidden[0] if hidden else 80, 4)
    ).double()
    x, y = make_batch(60, 12, 4)
    loss = CrossEntropy(class_weights=(1.0, 2.0, 0.0, 3.0))
    recovery = peel(model, local_update(model, x, y, Client(loss=loss, reduction="sum")), loss=loss)
    who = truths_of(recovery.samples, x)
    assert -1 not in who
    assert all(int(y[i]) != 2 for i in who)


@pytest.mark.parametrize("apart", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_mixtures_of_samples_that_fire_alike_are_no_samples(seed: int, apart: float) -> None:
    # Each neuron hands out another mixture of the two; one of them may happen to fit some label.
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(250, 200), nn.ReLU(), nn.Linear(200, 12), nn.ReLU(), nn.Linear(12, 6)
    ).double()
    x = torch.rand(6, 250).double()
    x[1] = x[0] + apart * torch.randn(250).double()
    y = torch.randint(0, 6, (6,))
    y[1] = (y[0] + 1) % 6
    target = split(model, share=True)
    with torch.no_grad():
        target.bias.sub_(target.pre_activations(x).mean(0))
        fires = target.pre_activations(x) > 0
        target.bias[fires[0] != fires[1]] -= 5
    fires = split(model).pre_activations(x) > 0
    assert torch.equal(fires[0], fires[1])
    recovery = peel(model, local_update(model, x, y, Client(dtype=torch.float32)))
    off = torch.cdist(recovery.samples, x) / 250**0.5
    assert bool((off.amin(1) <= 2 * recovery.errors).all())


@pytest.mark.parametrize("seed", [0, 2, 4])
@pytest.mark.slow
def test_certain_samples_can_be_audited(seed: int) -> None:
    rng = np.random.default_rng([seed, 2, 20])
    x = torch.tensor(rng.normal(size=(24, 20)) * 100)
    y = torch.tensor(rng.integers(0, 2, 24))
    rng.normal(size=(24, 20))
    model = mlp(20, 2, hidden=(60,), rng=rng)
    found = audit(model, x, y, attacker=Attacker(Passive("gaussian")), seed=seed)
    assert found.score.false_certificates == 0
