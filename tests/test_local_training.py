"""Clients that train locally, against a training loop as anybody writes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gradpeel import Client, InputError, LocalTraining, local_update
from gradpeel.exposure import exposure
from gradpeel.target import split
from gradpeel.trajectory import Trajectory
from support import make_batch, make_model

SGD: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"weight_decay": 1e-2},
    {"momentum": 0.5, "weight_decay": 0.1},
]


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]], **sgd: Any) -> dict[str, Tensor]:
    """The weights after a step on each batch."""
    worker = copy.deepcopy(model)
    optimiser = torch.optim.SGD(worker.parameters(), **sgd)
    for x, y in batches:
        optimiser.zero_grad()
        functional.cross_entropy(worker(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {name: parameter.detach() for name, parameter in worker.named_parameters()}


@settings(max_examples=30)
@given(
    features=st.integers(1, 12),
    neurons=st.integers(1, 20),
    batch=st.integers(1, 9),
    seed=st.integers(0, 1000),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_one_step_at_learning_rate_one_is_the_gradient(
    features: int, neurons: int, batch: int, seed: int, reduction: Any
) -> None:
    model = make_model(features, neurons, 3, (5,) * (seed % 2), seed=seed)
    x, y = make_batch(features, batch, 3, seed=seed)
    plain = local_update(model, x, y, Client(reduction=reduction))
    trained = local_update(model, x, y, Client(reduction=reduction, lr=1.0, local_steps=1))
    assert plain.training is None
    assert trained.training == LocalTraining(1.0, 1)
    assert (trained.batch_size, trained.reduction) == (batch, reduction)
    for name, gradient in plain.gradients.items():
        torch.testing.assert_close(trained.gradients[name], gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sgd", SGD, ids=str)
@pytest.mark.parametrize("steps", [1, 4])
def test_equals_a_loop_over_the_whole_batch(steps: int, sgd: dict[str, Any]) -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 7, 4)
    after = train(model, [(x, y)] * steps, lr=0.05, **sgd)
    update = local_update(model, x, y, Client(lr=0.05, local_steps=steps, **sgd))
    training = LocalTraining(0.05, steps, **sgd)
    assert update.training == training
    kept = training.kept
    assert kept is not None
    for name, parameter in model.named_parameters():
        expected = (kept * parameter.detach() - after[name]) / 0.05
        torch.testing.assert_close(update.gradients[name], expected, rtol=1e-10, atol=1e-12)
    # One step, whatever the weight decay, is the gradient of the batch.
    if steps == 1:
        for name, gradient in local_update(model, x, y).gradients.items():
            torch.testing.assert_close(update.gradients[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("client", "sizes"),
    [
        (Client(lr=0.1), [10]),
        (Client(lr=0.1, local_steps=3), [10, 10, 10]),
        (Client(lr=0.1, local_epochs=2), [10, 10]),
        (Client(lr=0.1, local_batch_size=4), [4, 4, 2]),
        (Client(lr=0.1, local_batch_size=4, local_steps=2), [4, 4]),
        (Client(lr=0.1, local_batch_size=4, local_steps=5), [4, 4, 2, 4, 4]),
        (Client(lr=0.1, local_batch_size=4, local_epochs=2), [4, 4, 2, 4, 4, 2]),
        (Client(lr=0.1, local_batch_size=64, local_epochs=2), [10, 10]),
        (Client(), [10]),
    ],
    ids=repr,
)
def test_minibatches_go_through_the_data(client: Client, sizes: list[int]) -> None:
    model, (x, y) = make_model(6, 12, 3), make_batch(6, 10, 3)
    chosen: list[Tensor] = []
    states: list[Tensor] = []

    def look(seen: nn.Module, some: Tensor) -> None:
        chosen.append(some)
        states.append(seen.get_parameter("0.weight").detach().clone())

    update = local_update(model, x, y, client, seed=3, on_step=look)
    assert [len(some) for some in chosen] == sizes
    assert update.batch_size == client.count_samples(10) == len(set(torch.cat(chosen).tolist()))
    assert client.count_steps(10) == len(sizes)
    if client.lr is None:
        assert update.training is None
    else:
        assert update.training == LocalTraining(client.lr, len(sizes))
    # Nobody twice in an epoch, everybody once.
    epoch: list[int] = []
    for some in chosen:
        epoch += some.tolist()
        assert len(set(epoch)) == len(epoch)
        if len(epoch) == 10:
            epoch = []
    # The model that is shown is that whose gradient is taken.
    assert torch.equal(states[0], model.get_parameter("0.weight"))
    if client.lr is not None:
        after = train(model, [(x[some], y[some]) for some in chosen], lr=client.lr)
        for name, parameter in model.named_parameters():
            expected = (parameter.detach() - after[name]) / client.lr
            torch.testing.assert_close(update.gradients[name], expected, rtol=1e-9, atol=1e-11)


def test_a_seed_names_the_training() -> None:
    model, (x, y) = make_model(6, 12, 3), make_batch(6, 10, 3)
    client = Client(lr=0.1, local_batch_size=3, local_epochs=2, noise=1e-3)
    start = torch.get_rng_state()
    one, same, other = (local_update(model, x, y, client, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), start)
    for name, gradient in one.gradients.items():
        assert torch.equal(gradient, same.gradients[name])
        assert not torch.equal(gradient, other.gradients[name])


def test_dropout_is_drawn_anew_in_every_step_and_onlookers_do_not_matter() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 3)).double()
    x, y = make_batch(6, 10, 3)
    client = Client(lr=0.1, local_steps=3)
    alone = local_update(model, x, y, client)
    seen = local_update(model, x, y, client, on_step=lambda *_: torch.rand(7))  # type: ignore[arg-type]
    for name, gradient in alone.gradients.items():
        assert torch.equal(gradient, seen.gradients[name])
    twice = local_update(model, x, y, Client(lr=1e-9, local_steps=2))
    once = local_update(model, x, y, Client(lr=1e-9, local_steps=1))
    assert not torch.allclose(twice.gradients["0.bias"], 2 * once.gradients["0.bias"])


def test_the_model_and_its_mode_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Linear(12, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = make_batch(6, 10, 3)
    local_update(model, x, y, Client(lr=0.1, local_steps=3))
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_frozen_parameters_are_not_sent() -> None:
    model, (x, y) = make_model(6, 12, 3), make_batch(6, 10, 3)
    model.get_parameter("2.bias").requires_grad_(False)
    update = local_update(model, x, y, Client(lr=0.1, local_steps=2))
    assert sorted(update.gradients) == ["0.bias", "0.weight", "2.weight"]


LOCALLY = "only a client with a learning rate (lr) trains locally"
ERRORS: list[tuple[Callable[[], object], str]] = [
    (lambda: Client(lr=0), "lr=0: expected a number above 0"),
    (lambda: Client(lr=float("nan")), "lr=nan: expected a number above 0"),
    (lambda: Client(lr="0.1"), "lr='0.1': expected a number above 0"),  # type: ignore[arg-type]
    (lambda: Client(lr=0.1, momentum=1), "momentum=1: expected a number from 0 to below 1"),
    (lambda: Client(lr=0.1, weight_decay=-1), "weight_decay=-1: expected a number of at least 0"),
    (lambda: Client(lr=0.1, local_steps=0), "local_steps=0: expected a positive integer"),
    (lambda: Client(lr=0.1, local_epochs=-1), "local_epochs=-1: expected a positive integer"),
    (
        lambda: Client(lr=0.1, local_batch_size=2.0),  # type: ignore[arg-type]
        "local_batch_size=2.0: expected a positive integer",
    ),
    (
        lambda: Client(lr=0.1, local_steps=2, local_epochs=3),
        "local_steps=2, local_epochs=3: expected one of the two",
    ),
    (lambda: Client(local_steps=2), f"local_steps=2: {LOCALLY}"),
    (lambda: Client(local_epochs=1), f"local_epochs=1: {LOCALLY}"),
    (lambda: Client(local_batch_size=8), f"local_batch_size=8: {LOCALLY}"),
    (lambda: Client(momentum=0.9), f"momentum=0.9: {LOCALLY}"),
    (lambda: Client(weight_decay=0.1), f"weight_decay=0.1: {LOCALLY}"),
    (
        lambda: local_update(make_model(4, 6, 3), *make_batch(4, 5, 3), {"lr": 1}),  # type: ignore[arg-type]
        "client of type dict: expected gradpeel.Client",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_a_training_that_diverges_is_named() -> None:
    model, (x, y) = make_model(6, 12, 3), make_batch(6, 10, 3)
    with pytest.raises(
        InputError, match=r"^lr=1e\+300: the training diverges in local step \d of 9"
    ):
        local_update(model, x, y, Client(lr=1e300, local_steps=9))


@pytest.mark.parametrize("sgd", SGD, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_contributions_add_up_to_the_update(sgd: dict[str, Any], reduction: Any) -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 9, 4)
    x[5] = x[2]
    client = Client(
        lr=0.02,
        local_batch_size=4,
        local_epochs=3,
        reduction=reduction,
        **sgd,
    )
    path = Trajectory(split(model), x, y, client)
    update = local_update(model, x, y, client, seed=1, on_step=path)
    c = path.contributions.c
    torch.testing.assert_close(c.sum(1), update.gradients["0.bias"], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(c @ x.double(), update.gradients["0.weight"], rtol=1e-8, atol=1e-10)
    # Where a sample, or its copy, never fired it adds nothing; everywhere else it may.
    grid = path.grid
    assert torch.equal(grid[:, 5], grid[:, 2])
    assert not bool(c[~grid].any())
    assert int((c != 0).sum()) > 0


def test_the_grid_is_that_of_ever_fired() -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 9, 4)
    client = Client(lr=2.0, local_batch_size=4, local_epochs=3)
    path, fired = Trajectory(split(model), x, y, client), torch.zeros(30, 9, dtype=torch.bool)

    def look(seen: nn.Module, some: Tensor) -> None:
        path(seen, some)
        for sample in some.tolist():
            fired[:, sample] |= seen[0](x[sample]) > 0  # type: ignore[index]

    local_update(model, x, y, client, on_step=look)
    assert torch.equal(path.grid, fired)
    received = exposure(model, x).grid
    assert bool((fired & ~received).any())
    # Who is not in the first minibatch may never meet the weights that were sent.
    assert bool((received & ~fired).any())


def test_one_gradient_has_the_grid_of_the_model_that_was_sent() -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 9, 4)
    path = Trajectory(split(model), x, y, Client())
    local_update(model, x, y, on_step=path)
    assert torch.equal(path.grid, exposure(model, x).grid)
