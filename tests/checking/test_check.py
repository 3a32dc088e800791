"""The client's check: what it predicts, what it decodes, and what it says to a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.checking import Budget, Checks, Verdict, check, check_batches
from gradpeel.datasets import draw_batch, load
from gradpeel.designs import Passive, SolitonData, SolitonFree, TrapWeights
from gradpeel.networks import mlp


class OfTokens(nn.Module):
    """A layer that acts on every token of a sequence, with a skip connection around it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 200), nn.Linear(200, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Any:
        return self.head((x + self.two(self.one(x).relu())).mean(1))


@pytest.fixture
def network() -> nn.Module:
    return mlp(64, 10, (300,), rng=np.random.default_rng(0), sample_shape=(8, 8))


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    drawn = draw_batch(load("digits"), 32)
    return drawn.x, drawn.y


PEELING = gp.Attacker(effort=0)
DESIGNS: list[Callable[[Tensor], Any]] = [
    lambda _: Passive(),
    lambda _: TrapWeights(0.95),
    lambda _: SolitonFree(),
    SolitonData,
]


@pytest.mark.parametrize("design", DESIGNS, ids=["passive", "traps", "free", "data"])
def test_peeling_reads_what_was_predicted_in_the_same_rounds(
    network: nn.Module, batch: tuple[Tensor, Tensor], design: Callable[[Tensor], Any]
) -> None:
    x, y = batch
    attacker = gp.Attacker(design(torch.rand(32, 8, 8).double()), effort=0)
    predicted = check(network, x, decode=False, attacker=attacker)
    decoded = check(network, x, y, attacker=attacker)
    assert decoded.audit is not None
    found = decoded.audit
    by_decoder = dict(
        zip(found.score.matches.tolist(), found.recovery.rounds.tolist(), strict=True)
    )
    assert by_decoder == {i: r for i, r in enumerate(predicted.rounds.tolist()) if r}
    for neuron, record in zip(
        found.recovery.sources.tolist(), found.score.matches.tolist(), strict=True
    ):
        assert neuron in predicted.sources[record]


def test_a_bound_of_zero_is_not_a_budget_that_holds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 400), nn.ReLU(), nn.Linear(400, 5)).double()
    x, y = torch.randn(24, 40), torch.arange(24) % 5
    predicted = check(model, x, decode=False)
    assert predicted.readable == 0
    assert predicted.rows_may_read
    assert predicted.at_most == 24
    assert predicted.verdict(Budget()) is Verdict.UNKNOWN
    assert "row cascade" in predicted.breaches(Budget())[0]
    assert predicted.verdict(Budget(1.0)) is Verdict.HOLDS
    decoded = check(model, x, y)
    assert decoded.readable == 24
    assert decoded.verdict(Budget()) is Verdict.LEAKS


def test_no_room_for_the_row_cascade_is_said_so() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 5))
    x, y = torch.randn(24, 40), torch.arange(24) % 5
    predicted = check(model, x, decode=False)
    assert not predicted.rows_may_read
    assert predicted.readable == predicted.at_most
    assert check(model, x, y).readable == predicted.readable


def test_the_update_that_leaves_is_the_one_that_is_checked(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    update = gp.local_update(network, *batch)
    assert check(network, *batch, update=update).readable == check(network, *batch).readable > 0
    drowned = gp.with_noise(update, 10.0)
    found = check(network, *batch, update=drowned, members=True)
    assert (found.readable, found.members) == (0, 0)
    assert found.verdict(Budget(0.0, 0.0)) is Verdict.HOLDS
    assert found.breaches(Budget(0.0, 0.0)) == ()


def test_a_defended_client_is_checked_with_its_defence(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    assert check(network, *batch, client=gp.Client(noise=10.0)).readable == 0


def test_several_local_steps_are_predicted_from_what_ever_fired(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    client = gp.Client(lr=0.05, local_steps=3)
    x, y = batch
    predicted = check(network, x, y, client=client, decode=False)
    assert torch.equal(
        predicted.exposure.grid, gp.audit(network, x, y, client=client).exposure.grid
    )
    with pytest.raises(gp.InputError, match="y=None"):
        check(network, x, client=client, decode=False)


def test_copies_are_read_through_the_same_neurons(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    x = torch.cat([batch[0], batch[0][:3]])
    found = check(network, x, decode=False)
    assert found.sources[32:] == found.sources[:3]
    assert torch.equal(found.rounds[32:], found.rounds[:3])


def test_a_record_of_tokens_is_read_if_one_token_is() -> None:
    torch.manual_seed(0)
    model = OfTokens()
    x = torch.randn(3, 5, 6)
    found = check(model, x, decode=False)
    assert found.records == 3
    assert found.exposure.grid.shape[1] == 15
    tokens = found.exposure.reached.view(3, 5)
    assert tokens.any(1).tolist() == found.read.tolist()
    assert 0 < found.readable < 3
    assert [bool(each) for each in found.sources] == found.read.tolist()


def test_the_worst_batch_decides(network: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    seen: list[gp.Check] = []
    found = check_batches(network, [(x[:8], y[:8]), (x[8:], y[8:])], on_check=seen.append)
    assert len(seen) == len(found) == 2
    assert found.records == 32
    assert found.readable == sum(each.readable for each in seen)
    assert found.verdict(Budget(1.0)) is Verdict.HOLDS
    assert found.verdict(Budget(0.0)) is Verdict.LEAKS
    assert found.breaches(Budget(0.0))[0].startswith("batch 1: 8 of 8 records can be read")
    open_one = check(network, torch.cat([x, x]) + torch.rand(64, 8, 8), decode=False)
    assert Checks((open_one, *seen)).verdict(Budget(0.0)) is Verdict.LEAKS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decode": False, "members": True}, "members: a prediction does not look at it"),
        ({"decode": False, "update": "x"}, "update: a prediction does not look at it"),
        ({"update": 3}, "update of type int: expected gradpeel.Update"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_what_is_refused(
    network: nn.Module, batch: tuple[Tensor, Tensor], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(gp.InputError, match=message):
        check(network, *batch, **settings)


def test_an_update_has_to_fit_what_is_said_of_it(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    update = gp.local_update(network, *batch)
    with pytest.raises(gp.InputError, match="the update is a gradient"):
        check(network, *batch, update=update, client=gp.Client(lr=0.1))
    with pytest.raises(gp.InputError, match="expected a design that keeps it"):
        check(network, *batch, update=update, attacker=gp.Attacker(TrapWeights()))


def test_nothing_to_check_is_an_error(network: nn.Module) -> None:
    with pytest.raises(gp.InputError, match="nothing to check"):
        check_batches(network, [])


def test_membership_that_was_not_checked_is_no_zero(
    network: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(gp.InputError, match="membership was not checked"):
        check(network, *batch).verdict(Budget(max_members=0.0))


@pytest.mark.parametrize("share", [-0.1, 1.1, "a", None, True])
def test_budgets_are_shares(share: Any) -> None:
    with pytest.raises(gp.InputError, match="max_readable="):
        Budget(share)


def test_a_model_that_is_refused_is_not_checked(batch: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    for decode in (True, False):
        with pytest.raises(gp.ModelRefusedError):
            check(model, *batch, decode=decode)
