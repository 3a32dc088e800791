"""The guard: nothing is read, the layout stays, and weights can be made of it again."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import gradpeel as gp
from gradpeel.designs import Layer, Passive, SolitonData
from gradpeel.errors import InputError
from gradpeel.guarding import Reading, _decompose
from gradpeel.training import weights_after

PEELING = gp.Attacker(effort=0)


def _network(features: int = 40, neurons: int = 200, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(features, neurons), nn.ReLU(), nn.Linear(neurons, classes)
    ).double()


def _batch(size: int = 16, features: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    x = torch.rand(size, features, generator=source, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=source)


@pytest.mark.slow
def test_nothing_is_read_of_a_guarded_update() -> None:
    model, (x, y) = _network(), _batch()
    assert len(gp.peel(model, gp.local_update(model, x, y)).samples) == 16
    guarded = gp.guard(model, x, y)
    found = gp.peel(model, guarded.update)
    assert not len(found.samples)
    assert not gp.contains(model, guarded.update, x).count("in")
    assert guarded.stops == ("peeling", "rows", "membership")
    assert 0 < guarded.rank < guarded.rank_before == 16
    assert 0.5 < guarded.kept < 1
    assert guarded.nearest >= 0.2


def test_what_is_sent_has_the_same_layout_and_other_layers_are_untouched() -> None:
    model, (x, y) = _network(), _batch()
    update = gp.local_update(model, x.float(), y, gp.Client(dtype=torch.float32))
    guarded = gp.guard(model.float(), x, y, update=update, attacker=PEELING).update
    assert replace(guarded, gradients=update.gradients).__dict__ == update.__dict__
    assert list(guarded.gradients) == list(update.gradients)
    for name, given in update.gradients.items():
        assert guarded.gradients[name].dtype == given.dtype
        assert guarded.gradients[name].shape == given.shape
    assert torch.equal(guarded.gradients["2.weight"], update.gradients["2.weight"])
    assert not torch.equal(guarded.gradients["0.weight"], update.gradients["0.weight"])


def test_the_rank_is_what_it_says() -> None:
    model, (x, y) = _network(), _batch()
    guarded = gp.guard(model, x, y, attacker=PEELING)
    sent = guarded.update.gradients
    both = torch.cat([sent["0.weight"], sent["0.bias"][:, None]], dim=1)
    values = torch.linalg.svdvals(both)
    assert int((values > 1e-9 * values[0]).sum()) == guarded.rank


def test_the_decomposition_is_that_of_lapack() -> None:
    source = torch.Generator().manual_seed(2)
    low = torch.randn(50, 6, generator=source, dtype=torch.float64) @ torch.randn(
        6, 30, generator=source, dtype=torch.float64
    )
    left, strengths, right = _decompose(low, 10)
    assert torch.allclose(left * strengths @ right, low)
    assert torch.allclose(strengths[:6], torch.linalg.svdvals(low)[:6])


def test_active_designs_are_undone() -> None:
    x, y = _batch(32)
    plain = _network()
    first = plain[0]
    assert isinstance(first, nn.Linear)
    shaped = SolitonData(_batch(64)[0]).shape(
        Layer(first.weight.detach(), first.bias.detach()),
        batch_size=32,
        rng=np.random.default_rng(0),
        front=nn.Identity(),
    )
    with torch.no_grad():
        first.weight.copy_(shaped.weight)
        first.bias.copy_(shaped.bias)
    assert len(gp.peel(plain, gp.local_update(plain, x, y), effort=0).samples) > 8
    guarded = gp.guard(plain, x, y, attacker=PEELING)
    assert guarded.after == Reading()


def test_weights_of_a_local_training() -> None:
    model, (x, y) = _network(), _batch()
    client = gp.Client(lr=0.1, local_steps=3, weight_decay=0.01)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    update = gp.local_update(model, x, y, client)
    assert update.training is not None
    after = weights_after(before, update.gradients, update.training)
    guarded = gp.guard(model, x, y, update=update, client=client, attacker=PEELING)
    sent = guarded.weights(before, {**after, "buffer": torch.ones(2)})
    assert torch.equal(sent["2.weight"], after["2.weight"])
    assert torch.equal(sent["buffer"], torch.ones(2))
    again = gp.Update.from_weights(
        before, {name: sent[name] for name in before}, lr=0.1, steps=3, weight_decay=0.01
    )
    assert torch.allclose(again.gradients["0.weight"], guarded.update.gradients["0.weight"])
    assert not len(gp.peel(model, again, effort=0).samples)


def test_a_batch_of_one_is_withheld() -> None:
    model, (x, y) = _network(), _batch(1)
    guarded = gp.guard(model, x, y, attacker=PEELING)
    assert guarded.is_withheld
    assert not guarded.update.gradients["0.weight"].any()
    assert not guarded.update.gradients["0.bias"].any()
    assert guarded.after == Reading()
    assert any("does not train" in sentence for sentence in guarded.leaves)


def test_alike_samples_are_not_sent_as_their_mean() -> None:
    model, (x, y) = _network(), _batch(8)
    alike = x[:1] + 1e-6 * x
    guarded = gp.guard(model, alike, y, attacker=PEELING)
    assert guarded.after is not None
    assert not guarded.after.readable


def test_features_behind_convolutions_are_guarded_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 200), nn.ReLU(),
        nn.Linear(200, 3),
    )  # fmt: skip
    x, y = _batch(16, 64)
    pictures = x.float().reshape(-1, 1, 8, 8)
    assert len(gp.peel(model, gp.local_update(model, pictures, y)).samples)
    guarded = gp.guard(model, pictures, y, attacker=PEELING)
    assert guarded.layer == "3"
    assert guarded.stops == ("peeling", "membership")


def test_a_scaled_layer_is_guarded_as_it_is_read() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(200)
    model = nn.Sequential(nn.Linear(40, 200), norm, nn.ReLU(), nn.Linear(200, 3)).double().eval()
    x, y = _batch()
    assert gp.peel(model, gp.local_update(model, x, y), effort=0).samples.shape[0]
    after = gp.guard(model, x, y, attacker=PEELING).after
    assert after is not None
    assert not after.readable


@pytest.mark.parametrize("apart", [-0.1, 1.0, "0.2", float("nan")])
def test_apart_is_checked(apart: float) -> None:
    with pytest.raises(InputError, match="apart="):
        gp.guard(_network(), *_batch(), apart=apart)


def test_a_gradient_makes_no_weights() -> None:
    model = _network()
    guarded = gp.guard(model, *_batch(), attacker=PEELING)
    with pytest.raises(InputError, match="expected a difference of weights"):
        guarded.weights(dict(model.state_dict()))


def test_it_is_the_same_every_time() -> None:
    model, (x, y) = _network(), _batch()
    first, second = (gp.guard(model, x, y, attacker=PEELING).update for _ in range(2))
    assert torch.equal(first.gradients["0.weight"], second.gradients["0.weight"])


def test_the_received_model_is_what_counts_not_the_design() -> None:
    model, (x, y) = _network(), _batch()
    passive = gp.guard(model, x, y, attacker=gp.Attacker(Passive(), effort=0))
    assert passive.rank == gp.guard(model, x, y, attacker=PEELING).rank
