"""Secure aggregation: the sum of several clients' updates, against the batch they have together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

import gradpeel as gp
from gradpeel import Aggregation, Client, CrossEntropy, InputError, LocalTraining, aggregate
from gradpeel.simulation import simulate_round
from support import make_batch, make_model

UNEQUAL = Aggregation(sizes=(9, 3), weighting="equal")


def parts(x: Tensor, y: Tensor, sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples of each client."""
    start = 0
    for size in sizes:
        yield x[start : start + size], y[start : start + size]
        start += size


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    reduction=st.sampled_from(["mean", "sum"]),
    lr=st.sampled_from([None, 0.5]),
    seed=st.integers(0, 1000),
)
def test_the_sum_is_the_update_of_the_joined_batch(
    sizes: list[int], reduction: Any, lr: float | None, seed: int
) -> None:
    model = make_model(5, 9, 3, seed=seed)
    x, y = make_batch(5, sum(sizes), 3, seed=seed)
    client = Client(reduction=reduction, lr=lr)
    weighting: Any = "samples" if reduction == "mean" else "equal"
    updates = [gp.local_update(model, *part, client) for part in parts(x, y, sizes)]
    found = aggregate(updates, weighting)
    joined = gp.local_update(model, x, y, client)
    assert found.equal_weights
    assert (found.clients, found.batch_size) == (len(sizes), sum(sizes))
    assert (found.reduction, found.training) == (reduction, joined.training)
    for name, gradient in joined.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "reduction", "weighting", "equal"),
    [
        ((4, 4), "mean", "equal", True),
        ((4, 4), "sum", "samples", True),
        ((4, 5), "mean", "equal", False),
        ((4, 5), "sum", "samples", False),
        ((4, 5), "mean", "samples", True),
    ],
)
def test_says_whether_samples_weigh_the_same(
    sizes: tuple[int, int], reduction: Any, weighting: Any, equal: bool
) -> None:
    model, (x, y) = make_model(5, 9, 3), make_batch(5, sum(sizes), 3)
    client = Client(reduction=reduction)
    updates = [gp.local_update(model, *part, client) for part in parts(x, y, sizes)]
    found = aggregate(updates, weighting)
    assert found.equal_weights is equal
    # Its scale is that of the clients: a mean of the same gradients is that gradient.
    one = gp.local_update(model, x[:4], y[:4], client)
    same = aggregate([one, one], weighting)
    factor = 1.0 if reduction == "mean" else 2.0
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(same.gradients[name], factor * gradient)


@pytest.mark.parametrize("clients", [2, 3, 4])
@pytest.mark.parametrize("design", ["passive", "soliton"])
def test_reads_the_samples_of_all_clients(clients: int, design: str) -> None:
    model, (x, y) = make_model(24, 300, 4), make_batch(24, 12, 4)
    attacker = gp.Attacker(effort=0.0)
    if design == "soliton":
        attacker = replace(
            attacker, design=gp.designs.SolitonData(make_batch(24, 40, 4, seed=5)[0])
        )
    found = gp.audit(model, x, y, attacker=attacker, aggregation=Aggregation(clients))
    alone = gp.audit(model, x, y, attacker=attacker)
    assert found.score.recovered == alone.score.recovered == round(12 * found.score.peeling_bound)
    assert found.score.false_certificates == found.score.wrong_multiplicities == 0
    assert found.recovery.batch_size.value == 12
    assert sum(found.recovered_by_client) == found.score.recovered
    assert found.owners.tolist() == sorted(list(range(clients)) * (12 // clients))
    assert found.as_dict()["clients"] == clients


@pytest.mark.parametrize("knows_batch_size", [True, False])
def test_samples_of_small_clients_are_not_taken_for_copies(knows_batch_size: bool) -> None:
    # A sample of the small client weighs three times as much as one of the large client.
    model, (x, y) = make_model(24, 300, 4), make_batch(24, 12, 4)
    attacker = gp.Attacker(knows_batch_size=knows_batch_size)
    found = gp.audit(model, x, y, attacker=attacker, aggregation=UNEQUAL)
    assert found.score.recovered == 12
    assert found.score.false_certificates == found.score.wrong_multiplicities == 0
    assert found.recovered_by_client == (9, 3)
    assert not bool((found.recovery.multiplicities > 1).any())
    assert found.without_tail == "samples of different clients have different weights in the sum"


def test_class_weights_differ_from_client_to_client() -> None:
    model, (x, y) = make_model(24, 300, 4), make_batch(24, 12, 4)
    client = Client(loss=CrossEntropy(class_weights=(1.0, 2.0, 0.5, 4.0)))
    found = gp.audit(model, x, y, client=client, aggregation=Aggregation(3))
    assert found.score.recovered == 12
    assert found.score.false_certificates == found.score.wrong_multiplicities == 0
    assert found.without_tail is not None
    alone = gp.audit(model, x, y, client=client)
    assert alone.without_tail is None


def test_a_sample_that_two_clients_hold_is_two_copies() -> None:
    model, (x, y) = make_model(24, 300, 4), make_batch(24, 12, 4)
    x[9], y[9] = x[2], y[2]
    found = gp.audit(model, x, y, aggregation=Aggregation(2))
    assert found.score.recovered == 12
    assert found.recovery.multiplicities.sum() == 12
    assert found.score.wrong_multiplicities == 0


@pytest.mark.parametrize("local", [{"local_steps": 4}, {"local_epochs": 2, "local_batch_size": 4}])
def test_reads_the_samples_of_clients_that_train(local: dict[str, int]) -> None:
    model, (x, y) = make_model(40, 300, 5), make_batch(40, 16, 5)
    client = Client(lr=0.01, **local)  # type: ignore[arg-type]
    found = gp.audit(model, x, y, client=client, aggregation=Aggregation(2))
    assert found.score.recovered == 16
    assert found.score.false_certificates == 0
    assert found.recovered_by_client == (8, 8)
    assert set(found.membership.verdicts) == {"in"}


def test_what_every_sample_adds_is_the_update() -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 9, 4)
    client = Client(lr=0.05, local_epochs=2, local_batch_size=2)
    shares = Aggregation(sizes=(4, 5), weighting="equal")
    found = simulate_round(model, gp.split(model), x, y, client=client, aggregation=shares, seed=3)
    c = found.contributions.c
    torch.testing.assert_close(c.sum(1), found.update.gradients["0.bias"], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(c @ x, found.update.gradients["0.weight"], rtol=1e-8, atol=1e-10)
    assert not bool(c[~found.exposure.grid].any())
    assert found.update.training == LocalTraining(0.05, None)


def test_clients_draw_numbers_of_their_own() -> None:
    model, (x, y) = make_model(10, 30, 4), make_batch(10, 4, 4)
    x, y = torch.cat([x, x]), torch.cat([y, y])
    client = Client(noise=0.1)
    alone = gp.local_update(model, x[:4], y[:4], client)
    found = simulate_round(
        model, gp.split(model), x, y, client=client, aggregation=Aggregation(2), seed=0
    )
    again = simulate_round(
        model, gp.split(model), x, y, client=client, aggregation=Aggregation(2), seed=0
    )
    assert not torch.equal(found.update.gradients["0.bias"], alone.gradients["0.bias"])
    assert torch.equal(found.update.gradients["0.bias"], again.update.gradients["0.bias"])


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_file_keeps_what_is_known(tmp_path: Path, suffix: str) -> None:
    gradients = {"0.weight": torch.ones(2, 3), "0.bias": torch.ones(2)}
    update = gp.Update(gradients, 7, clients=3, equal_weights=False)
    found = gp.load_update(gp.save_update(update, tmp_path / f"update.{suffix}"))
    assert (found.clients, found.equal_weights, found.batch_size) == (3, False, 7)
    assert repr(found) == (
        "Update(2 tensors, 8 numbers, float32, batch_size=7, reduction='mean', clients=3, "
        "equal_weights=False)"
    )


def ones(**settings: Any) -> gp.Update:
    shape = settings.pop("shape", (2, 3))
    dtype = settings.pop("dtype", torch.float32)
    return gp.Update({"w": torch.ones(shape, dtype=dtype)}, **settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Aggregation(0), "clients=0: expected a positive integer"),
        (lambda: Aggregation(True), "clients=True: expected a positive integer"),
        (lambda: Aggregation(sizes=()), r"sizes=\(\): expected the number of samples of each"),
        (lambda: Aggregation(sizes="34"), "sizes='34': expected the number"),  # type: ignore[arg-type]
        (lambda: Aggregation(sizes=(3, 0)), "sizes=0: expected a positive integer"),
        (lambda: Aggregation(3, (3, 4)), "clients=3: expected 2, one for each of the sizes"),
        (lambda: Aggregation(2, weighting="mean"), "weighting='mean': expected one of"),  # type: ignore[arg-type]
        (lambda: Aggregation(9).split(8), "clients=9: expected at most as many as the 8 samples"),
        (lambda: Aggregation(sizes=(3, 4)).split(8), r"sizes=\(3, 4\): they add up to 7: expected"),
        (lambda: aggregate([]), "updates: expected at least one"),
        (lambda: aggregate([ones()], "all"), "weighting='all': expected one of"),  # type: ignore[arg-type]
        (lambda: aggregate([ones(), 3]), r"updates\[1\] of type int: expected gradpeel.Update"),  # type: ignore[list-item]
        (
            lambda: aggregate([ones(batch_size=2), ones()]),
            r"updates\[1\]: batch_size=None: expected the number of its samples",
        ),
        (
            lambda: aggregate([ones(), ones(shape=(3, 2))]),
            r"updates\[1\]: w of shape \(3, 2\): expected \(2, 3\) as in the first",
        ),
        (
            lambda: aggregate([ones(), ones(dtype=torch.float64)]),
            r"updates\[1\]: dtype=torch.float64: expected torch.float32 as in the first",
        ),
        (
            lambda: aggregate([ones(), ones(reduction="sum")]),
            r"updates\[1\]: reduction=sum: expected mean as in the first",
        ),
        (
            lambda: aggregate([ones(), ones(training=LocalTraining(0.1, 3))]),
            r"updates\[1\]: training=LocalTraining\(.*\): expected None",
        ),
        (lambda: ones(clients=0), "clients=0: expected a positive integer"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_an_audit_names_what_is_wrong() -> None:
    model, (x, y) = make_model(5, 9, 3), make_batch(5, 4, 3)
    with pytest.raises(
        InputError, match=r"aggregation of type int: expected gradpeel\.Aggregation"
    ):
        gp.audit(model, x, y, aggregation=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="clients=5: expected at most as many as the 4 samples"):
        gp.audit(model, x, y, aggregation=Aggregation(5))
    with pytest.raises(InputError, match="y of 3 entries: expected one for each of the 4 samples"):
        gp.audit(model, x, y[:3], aggregation=Aggregation(2))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"clients": "two"}, "clients='two': expected a positive integer"),
        ({"clients": "0"}, "clients=0: expected a positive integer"),
        ({"weights": "some"}, "weights='some': expected equal or unequal"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, meta: dict[str, str], message: str) -> None:
    path = tmp_path / "update.safetensors"
    path.write_bytes(save({"w": torch.ones(2)}, metadata=meta))
    with pytest.raises(InputError, match=f"update.safetensors: {message}"):
        gp.load_update(path)
