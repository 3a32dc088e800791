"""Samples without tail, labels and loss: by the structure of the update, and the next layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gradpeel import Client
from gradpeel.client import local_update
from gradpeel.decoder import Recovery, peel
from gradpeel.errors import InputError
from gradpeel.losses import BinaryCrossEntropy, Loss, MeanSquaredError
from gradpeel.noise import with_noise
from gradpeel.update import Update
from support import (
    SmallRound,
    first_is_fast,
    make_batch,
    make_model,
    make_round,
    recovered,
    round_of,
)

FEATURES, NEURONS, BATCH, OUTPUTS = 60, 500, 10, 6


def targets(y: Tensor) -> Tensor:
    """Something to regress on, or several labels each."""
    generator = torch.Generator().manual_seed(int(y.sum()))
    return torch.rand(len(y), OUTPUTS, generator=generator, dtype=torch.float64).round()


def found_in(recovery: Recovery, round_: SmallRound, *, within: float = 1e-6) -> set[int]:
    """Who came back; nobody twice, nobody who was not there, nobody with a label."""
    found = recovered(recovery, round_, within=within)
    assert bool((recovery.labels == -1).all())
    assert not bool(recovery.multiplicities.any())
    assert recovery.share is None
    assert recovery.batch_size.proven is None
    return found


def reached(round_: SmallRound) -> set[int]:
    return set(round_.exposure.reached.nonzero()[:, 0].tolist())


def wide(
    *, seed: int = 0, hidden: tuple[int, ...] = (), dtype: torch.dtype = torch.float64
) -> SmallRound:
    return make_round(FEATURES, NEURONS, BATCH, OUTPUTS, hidden, seed=seed, dtype=dtype)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("hidden", [(), (30,), (30, 20)])
@pytest.mark.parametrize("stated", [True, False])
def test_an_unknown_loss(seed: int, hidden: tuple[int, ...], *, stated: bool) -> None:
    round_ = wide(seed=seed, hidden=hidden)
    update = round_.update if stated else replace(round_.update, batch_size=None)
    recovery = peel(round_.model, update, knows_tail=False)
    assert found_in(recovery, round_) == reached(round_) == set(range(BATCH))
    # As many as are stated, and nothing is left: nobody else says how many there are.
    assert recovery.complete == stated
    assert recovery.batch_size.value == (BATCH if stated else None)
    assert recovery.rank == BATCH
    assert recovery.explained == pytest.approx(1.0)
    assert recovery.kinds == ("next layer", "structure")


@pytest.mark.slow
@pytest.mark.parametrize("loss", [MeanSquaredError(), BinaryCrossEntropy()])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("hidden", [(), (30,)])
def test_losses_without_labels(loss: Loss, dtype: torch.dtype, hidden: tuple[int, ...]) -> None:
    for seed in range(2):
        body = wide(seed=seed, hidden=hidden, dtype=dtype)
        update = local_update(body.model, body.x, targets(body.y), Client(loss=loss))
        round_ = SmallRound(body.model, body.x, body.y, update)
        for knows_tail in (True, False):
            recovery = peel(round_.model, update, loss=loss, knows_tail=knows_tail)
            assert found_in(recovery, round_, within=1e-3) == reached(round_)


TAILS: dict[str, Callable[[], list[nn.Module]]] = {
    "dropout behind the next layer": lambda: [
        nn.Linear(NEURONS, 40),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(40, OUTPUTS),
    ],
    "batch norm behind the next layer": lambda: [
        nn.Linear(NEURONS, 40),
        nn.BatchNorm1d(40),
        nn.ReLU(),
        nn.Linear(40, OUTPUTS),
    ],
    "both": lambda: [
        nn.Linear(NEURONS, 40),
        nn.BatchNorm1d(40),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.Linear(40, OUTPUTS),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(2))
def test_in_training_mode(tail: str, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    body = make_model(FEATURES, NEURONS, OUTPUTS, seed=seed)
    model = nn.Sequential(body[0], body[1], *TAILS[tail]()).to(dtype).train()
    x, y = make_batch(FEATURES, BATCH, OUTPUTS, seed=seed)
    round_ = round_of(model, x, y, seed=seed)
    # Whether one says so or not: the tail is in training mode, so nobody can simulate it.
    for knows_tail in (True, False):
        recovery = peel(model, round_.update, knows_tail=knows_tail)
        assert found_in(recovery, round_, within=1e-3) == reached(round_)
        assert recovery.kinds == ("next layer", "structure")


@pytest.mark.parametrize("seed", first_is_fast(range(3)))
def test_dropout_on_the_activations_certifies_nothing_false(seed: int) -> None:
    # The next layer sees other activations than the target's; where each sample fires is all
    # there is, and dropout hides some of that.
    torch.manual_seed(seed)
    body = make_model(FEATURES, NEURONS, OUTPUTS, seed=seed)
    tail = [nn.Dropout(0.3), nn.Linear(NEURONS, OUTPUTS)]
    model = nn.Sequential(body[0], body[1], *tail).double().train()
    x, y = make_batch(FEATURES, BATCH, OUTPUTS, seed=seed)
    round_ = round_of(model, x, y, seed=seed)
    recovery = peel(model, round_.update)
    found_in(recovery, round_)
    assert "next layer" not in recovery.kinds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_without_a_next_layer_where_a_sample_fires_must_do(seed: int, dtype: torch.dtype) -> None:
    round_ = wide(seed=seed, dtype=dtype)
    recovery = peel(round_.model, round_.update, knows_tail=False, use_next_layer=False)
    found = found_in(recovery, round_, within=1e-3)
    assert recovery.kinds in ((), ("structure",))
    if dtype == torch.float64:
        assert len(found) >= BATCH // 2


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_first_layers_of_a_deeper_network_will_do(layers: int, dtype: torch.dtype) -> None:
    for seed in range(3):
        round_ = wide(seed=seed, hidden=(30, 20), dtype=dtype)
        stump = round_.model[:layers]
        recovery = peel(stump, round_.update, knows_tail=False)
        found = found_in(recovery, round_, within=1e-3)
        if layers == 3:
            assert found == reached(round_)
        elif dtype == torch.float64:
            assert len(found) >= BATCH // 2


def test_a_tail_that_is_missing_must_be_said_to_be() -> None:
    round_ = wide()
    with pytest.raises(InputError, match="where the tail is unknown, say so: knows_tail=False"):
        peel(round_.model[:2], round_.update)


@pytest.mark.parametrize("sigma", [1e-8, 1e-6])
@pytest.mark.slow
def test_a_little_noise_is_no_obstacle(sigma: float) -> None:
    for seed in range(3):
        round_ = wide(seed=seed, hidden=(30,))
        update = with_noise(round_.update, sigma, seed=seed)
        recovery = peel(round_.model, update, knows_tail=False)
        assert len(found_in(recovery, round_, within=1e-2)) >= BATCH - 1


def test_a_next_layer_whose_gradient_was_not_sent_is_no_evidence() -> None:
    round_ = wide()
    first = {name: g for name, g in round_.update.gradients.items() if name.startswith("0.")}
    recovery = peel(round_.model, Update(first, BATCH), knows_tail=False)
    found_in(recovery, round_)
    assert recovery.kinds in ((), ("structure",))


def test_narrow_layers_say_too_little() -> None:
    # In a layer this narrow mixtures may fire as samples do: nothing is certified.
    round_ = make_round(24, 40, 6)
    recovery = peel(round_.model, round_.update, knows_tail=False)
    assert len(recovery) == 0
