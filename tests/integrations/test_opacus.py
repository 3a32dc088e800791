"""Opacus: its own gradients are the ones that are audited, wrapped or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.errors import InputError

pytest.importorskip("opacus")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Opacus warns of its random numbers, torch of its hooks
]

NORM = 0.1


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(80, 200), nn.ReLU(), nn.Linear(200, 3)).double()


def _batch() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.rand(32, 80, generator=source, dtype=torch.float64), torch.randint(
        3, (32,), generator=source
    )


def _private(*, noise: float = 0.0, **settings: Any) -> tuple[Any, Any, nn.Module]:
    """What `make_private` returns, and the module that it was given."""
    from opacus import PrivacyEngine

    network, (x, y) = _network(), _batch()
    found = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, y), batch_size=32
        ),
        noise_multiplier=noise,
        poisson_sampling=False,
        **{"max_grad_norm": NORM, **settings},
    )
    return found[0], found[1], network


@pytest.mark.parametrize("wrapped", [True, False])
def test_clipping_without_noise_is_read_without_the_tail(wrapped: bool) -> None:
    from gradpeel.integrations.opacus import audit_private

    model, optimiser, network = _private(wrap_model=wrapped)
    x, y = _batch()
    before = [value.clone() for value in network.parameters()]
    for given in (model,) if wrapped else (model, network):
        found = audit_private(given, optimiser, x, y)
        assert found.score.recovered == 32
        assert found.score.false_certificates == 0
        assert found.without_tail == "samples have different weights in the update"
    assert all(map(torch.equal, before, network.parameters()))


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_gradient_is_that_of_opacus(wrapped: bool) -> None:
    from gradpeel.integrations.opacus import private_client

    model, optimiser, network = _private(wrap_model=wrapped)
    x, y = _batch()
    forward = model if wrapped else network
    nn.functional.cross_entropy(forward(x), y).backward()  # type: ignore[no-untyped-call]
    optimiser.pre_step()
    theirs = gp.Update.from_gradients(network, batch_size=32)
    ours = gp.local_update(_network(), x, y, private_client(optimiser))
    for name, gradient in theirs.gradients.items():
        largest = float(gradient.abs().max())
        assert torch.allclose(ours.gradients[name], gradient, atol=1e-4 * largest), name


def test_noise_stops_it_and_is_stated() -> None:
    from gradpeel.integrations.opacus import audit_private

    model, optimiser, _ = _private(noise=1.1)
    found = audit_private(model, optimiser, *_batch(), attacker=gp.Attacker(effort=0))
    assert (found.score.read, found.score.false_certificates) == (0, 0)
    assert found.as_dict()["defences"] == ["dp:0.1,1.1"]


def test_what_cannot_be_simulated_is_refused() -> None:
    from gradpeel.integrations.opacus import private_client

    with pytest.raises(InputError, match="expected the one that make_private returned"):
        private_client(torch.optim.SGD(_network().parameters(), lr=0.1))
    _, optimiser, _ = _private(max_grad_norm=[NORM] * 4, clipping="per_layer")
    with pytest.raises(InputError, match="clipping by layers"):
        private_client(optimiser)


def test_epsilon_of_a_run_is_about_that_of_opacus() -> None:
    from opacus.accountants.analysis import rdp

    orders = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))
    for noise, rate, steps in ((1.1, 0.01, 1000), (0.8, 0.03, 500), (2.0, 0.1, 100)):
        loss = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
        theirs, _ = rdp.get_privacy_spent(orders=orders, rdp=loss, delta=1e-5)
        ours = gp.defences.epsilon_of_run(noise, 1e-5, steps=steps, sample_rate=rate)
        assert ours == pytest.approx(theirs, rel=0.03)
