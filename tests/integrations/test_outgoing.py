"""What becomes of weights that are about to leave, whatever the framework."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gradpeel as gp
from gradpeel.integrations import outgoing
from gradpeel.integrations.outgoing import Decision, Outgoing, Policy, WithheldError
from integrations.small_clients import CLIENT, RECORDS, load_batch, make_model, readable, trained


def _decide(policy: Any, after: dict[str, torch.Tensor] | None = None, **settings: Any) -> Decision:
    watch = Outgoing(**{"make_model": make_model, "client": CLIENT, **settings})
    client = trained()
    sent = client.after if after is None else after
    return watch.decide(client.before, sent, client.x, client.y, policy=policy)


@pytest.mark.parametrize("policy", ["log", "warn"])
def test_what_exceeds_the_budget_is_named_and_sent(policy: Policy) -> None:
    decision = _decide(policy)
    assert decision.check.readable == RECORDS
    assert decision.breaches == ("4 of 4 records can be read: max_readable=0 allows 0",)
    assert decision.weights is None


@pytest.mark.slow
def test_other_samples_than_those_that_took_part() -> None:
    client, other = trained(), load_batch(5)
    watch = Outgoing(make_model=make_model, client=CLIENT)
    with pytest.raises(gp.InputError, match="batch: the update holds 4 other samples: expected"):
        watch.decide(client.before, client.after, *other, policy="log")
    # Too little noise to hide who took part, and enough to keep samples from being certified.
    noisy = {
        name: value + 1e-4 * torch.randn(value.shape, generator=torch.Generator().manual_seed(3))
        for name, value in client.after.items()
    }
    decision = watch.decide(client.before, noisy, *other, policy="log")
    assert decision.warns
    assert "left a trace in the update" in str(decision)
    assert watch.decide(client.before, noisy, client.x, client.y, policy="log").doubt is None


def test_it_can_be_refused() -> None:
    with pytest.raises(WithheldError, match="4 of 4 records can be read"):
        _decide("refuse")


@pytest.mark.parametrize("policy", ["guard", "refuse"])
def test_what_keeps_to_the_budget_is_sent_as_it_is(policy: Policy) -> None:
    decision = _decide(policy, budget=gp.Budget(max_readable=1.0))
    assert (decision.breaches, decision.weights) == ((), None)


def test_members_are_counted_if_the_budget_limits_them() -> None:
    budget = gp.Budget(max_readable=1.0, max_members=0.5)
    with pytest.raises(WithheldError, match="4 of 4 records can be shown to have taken part"):
        _decide("refuse", budget=budget)


@pytest.mark.slow
def test_after_the_guard_nothing_is_read() -> None:
    decision = _decide("guard")
    assert decision.weights is not None
    assert decision.weights.keys() == trained().after.keys()
    assert readable(trained().after) == RECORDS
    assert readable(decision.weights) == 0
    assert str(decision).endswith("a guarded update is sent instead")


def test_a_guard_that_does_not_suffice_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        def weights(self, *_: object, after: object) -> object:
            return after

    monkeypatch.setattr(outgoing, "guard", lambda *_, **__: Idle())
    with pytest.raises(WithheldError, match="withheld although guarded: 4 of 4"):
        _decide("guard")


def test_what_leaves_is_checked_not_what_training_would_give() -> None:
    noisy = {
        name: value + 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(3))
        for name, value in trained().after.items()
    }
    assert _decide("refuse", noisy).check.readable == 0


def test_frozen_weights_may_not_change() -> None:
    def make_normalised() -> nn.Module:
        model = nn.Sequential(gp.Normalise(0.5, 2.0), *make_model())  # type: ignore[misc]
        model[1].bias.requires_grad = False
        return model

    model = make_normalised()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = trained().x, trained().y
    torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    watch = Outgoing(make_model=make_normalised, client=CLIENT)
    after = model.state_dict() | {"1.bias": before["1.bias"] + 1}
    with pytest.raises(gp.InputError, match=r"'1\.bias': changed, although the network does not"):
        watch.decide(before, after, x, y, policy="log")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client": gp.Client()}, "client: lr=None: weights are sent: expected the learning rate"),
        ({"client": 0.1}, "client of type float: expected gradpeel.Client"),
        ({"budget": 0.1}, "budget of type float: expected gradpeel.Budget"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(gp.InputError, match=message):
        _decide("log", **settings)


def test_there_is_no_such_policy() -> None:
    rule = "policy='block': expected one of log, warn, guard, refuse"
    with pytest.raises(gp.InputError, match=rule):
        _decide("block")


def test_other_weights_than_those_that_came() -> None:
    with pytest.raises(gp.InputError, match="'extra': expected the same weights"):
        _decide("log", {**trained().after, "extra": torch.ones(1)})
