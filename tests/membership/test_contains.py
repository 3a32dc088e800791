"""Verdicts on records: right wherever one is given, and none where the update cannot tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import load
from gradpeel.errors import InputError
from support import default_model


def draw(count: int, features: int, *, seed: int = 0) -> Tensor:
    return torch.rand(count, features, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int = 4) -> Tensor:
    return torch.arange(count) % classes


def wrong(found: gp.Membership, members: int) -> int:
    """Members reported as out, and others reported as in."""
    return found.verdicts[:members].count("out") + found.verdicts[members:].count("in")


def ask(
    batch: int,
    *,
    features: int = 60,
    neurons: int = 150,
    others: int = 100,
    client: gp.Client = gp.Client(),  # noqa: B008
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> gp.Membership:
    model = default_model(features, neurons, 4, seed=seed, dtype=dtype)
    x = draw(batch + others, features, seed=seed).to(dtype)
    update = gp.local_update(model, x[:batch], labels(batch), client, seed=seed)
    return gp.contains(model, update, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "client",
    [
        gp.Client(),
        gp.Client(lr=0.1, local_steps=20, local_batch_size=8),
        gp.Client(lr=0.1, local_steps=5, momentum=0.9),
        gp.Client(reduction="sum"),
    ],
    ids=["gradient", "minibatches", "momentum", "sum"],
)
def test_everybody_is_recognised(client: gp.Client, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and client.lr is not None:
        pytest.skip("an ulp of a bfloat16 weight is more than what a step changes")
    found = ask(24, client=client, dtype=dtype)
    assert found.verdicts == ("in",) * 24 + ("out",) * 100
    assert found.rank == 24
    assert found.power == 1.0
    assert (found.distances[:24] <= 5 * found.errors[:24]).all()
    assert set(found.reasons) == {None}


@given(
    batch=st.integers(1, 60),
    features=st.integers(5, 70),
    neurons=st.integers(5, 120),
    steps=st.sampled_from([None, 1, 4]),
    double=st.booleans(),
    seed=st.integers(0, 5),
)
@settings(max_examples=75)
@pytest.mark.slow
def test_no_verdict_is_ever_wrong(
    *, batch: int, features: int, neurons: int, steps: int | None, double: bool, seed: int
) -> None:
    client = gp.Client() if steps is None else gp.Client(lr=0.1, local_steps=steps)
    dtype = torch.float64 if double else torch.float32
    found = ask(
        batch, features=features, neurons=neurons, client=client, dtype=dtype, seed=seed, others=40
    )
    assert wrong(found, batch) == 0
    if found.rank >= min(neurons, features + 1):
        assert set(found.verdicts) == {"unknown"}


@pytest.mark.parametrize("noise", [1e-6, 1e-4, 1e-2, 1.0])
def test_noise_makes_errors_larger_and_verdicts_fewer_but_not_wrong(noise: float) -> None:
    found, exact = ask(24, client=gp.Client(noise=noise)), ask(24)
    assert wrong(found, 24) == 0
    assert found.errors.median() > 3 * exact.errors.median()
    assert found.count("in") == (24 if noise <= 1e-2 else 0)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_an_update_does_not_matter(factor: float) -> None:
    model, x = default_model(60, 150, 4), draw(124, 60)
    update = gp.local_update(model, x[:24], labels(24))
    scaled = {name: factor * g for name, g in update.gradients.items()}
    for batch_size in (24, None):
        found = gp.contains(model, gp.Update(scaled, batch_size), x)
        assert found.verdicts == ("in",) * 24 + ("out",) * 100


def test_a_single_canary_needs_the_batch_size_or_a_witness() -> None:
    model, x = default_model(60, 150, 4), draw(25, 60)
    update = gp.local_update(model, x[:24], labels(24))
    for known in (update, replace(update, batch_size=None)):
        assert gp.contains(model, known, x[:1]).verdicts == ("in",)
    # Without neurons to spare nothing bears witness for a record alone.
    narrow = default_model(60, 30, 4)
    update = replace(gp.local_update(narrow, x[:24], labels(24)), batch_size=None)
    found = gp.contains(narrow, update, x[:1])
    assert found.verdicts == ("unknown",)
    assert found.reasons[0] is not None
    assert "give records that were not in" in found.reasons[0]
    assert gp.contains(narrow, update, x[:1], non_members=draw(50, 60, seed=9)).verdicts == ("in",)


def test_non_members_count_false_positives() -> None:
    model, x = default_model(60, 150, 4), draw(124, 60)
    update = gp.local_update(model, x[:24], labels(24))
    found = gp.contains(model, update, x[:30], non_members=x[30:])
    assert found.verdicts == ("in",) * 24 + ("out",) * 6
    assert (found.non_members, found.false_positives) == (94, 0)
    assert found.false_positive_rate == pytest.approx(1 / 95)
    # Told that members were not in, it must not trust the distance any more.
    narrow = default_model(60, 30, 4)
    update = gp.local_update(narrow, x[:24], labels(24))
    found = gp.contains(narrow, update, x[:30], non_members=x[:24])
    assert found.verdicts == ("unknown",) * 24 + ("out",) * 6


def test_records_that_are_sums_of_others_are_not_called_in() -> None:
    """Where records fill a space of few dimensions, lying in it says nothing."""
    model = default_model(60, 150, 4)
    mix = draw(20, 60, seed=3) - 0.5
    x = draw(200, 20, seed=4) @ mix
    update = gp.local_update(model, x[:40], labels(40))
    found = gp.contains(model, update, x)
    assert found.rank == 21  # and the constant
    assert set(found.verdicts) == {"unknown"}
    found = gp.contains(model, update, x[:50], non_members=x[100:])
    assert set(found.verdicts) == {"unknown"}
    assert found.reasons[0] == "a record that was not in could lie as close by chance"


def test_one_hot_rows_need_a_second_witness() -> None:
    source = torch.Generator().manual_seed(0)
    values = torch.randint(4, (300, 12), generator=source)
    x = nn.functional.one_hot(values, 4).flatten(1).float()
    model = default_model(48, 400, 4)
    update = gp.local_update(model, x[:24], labels(24))
    found = gp.contains(model, update, x)
    assert found.verdicts[:24] == ("in",) * 24
    assert "in" not in found.verdicts[24:]
    # A record that was not in, in the span because others are: (a, b) = (a, d) + (c, b) - (c, d).
    mixed = x[:4].clone()
    mixed[0] = mixed[1] + mixed[2] - mixed[3]
    update = gp.local_update(model, mixed[1:], labels(3))
    assert gp.contains(model, update, mixed[:1]).verdicts != ("in",)


def test_a_record_that_leaves_no_trace_is_not_called_out() -> None:
    model, x = default_model(60, 150, 4), draw(40, 60)
    with torch.no_grad():
        model.get_parameter("0.weight")[:, 0] = -0.1
    silent = torch.zeros(1, 60)
    silent[:, 0] = 100.0
    update = gp.local_update(model, torch.cat([x[:24], silent]), labels(25))
    found = gp.contains(model, update, torch.cat([silent, x[24:]]))
    assert found.verdicts == ("unknown",) + ("out",) * 16
    assert "too faint" in (found.reasons[0] or "")


def test_a_record_that_the_network_is_certain_of_is_not_called_out() -> None:
    model, x = default_model(60, 150, 4), draw(40, 60)
    with torch.no_grad():
        model.get_parameter("2.weight").mul_(1e4)
    sure = model(x).argmax(1)
    update = gp.local_update(model, x[:24], (sure[:24] + torch.arange(24) % 2) % 4)
    found = gp.contains(model, update, x)
    assert wrong(found, 24) == 0
    assert found.verdicts[:24].count("in") == found.rank <= 14
    # With its label known, a record would have been seen.
    found = gp.contains(model, update, x[24:], labels=(sure[24:] + 1) % 4)
    assert set(found.verdicts) == {"out"}


@pytest.mark.parametrize(("change", "verdict"), [(1e-2, "out"), (1e-4, "out"), (0.0, "in")])
def test_near_copies_are_told_apart_down_to_the_error(change: float, verdict: str) -> None:
    model, x = default_model(60, 150, 4), draw(124, 60)
    update = gp.local_update(model, x[:24], labels(24))
    near = x[:24] + change * draw(24, 60, seed=7)
    found = gp.contains(model, update, torch.cat([near, x[24:]]))
    assert set(found.verdicts[:24]) == {verdict}


def test_copies_share_a_verdict_and_a_front_is_applied() -> None:
    net = default_model(48, 150, 4)
    model = nn.Sequential(gp.Normalise([0.5, 0.2, 0.1], 0.3), nn.Flatten(), net)
    x = draw(80, 48).reshape(80, 3, 4, 4)
    x[1] = x[0]
    update = gp.local_update(model, x[:16], labels(16))
    found = gp.contains(model, update, x)
    assert found.rank == 15
    assert found.verdicts[:16] == ("in",) * 16
    assert "in" not in found.verdicts[16:]


def test_only_the_target_is_needed() -> None:
    model, x = default_model(60, 150, 4), draw(124, 60)
    update = gp.local_update(model, x[:24], labels(24))
    first = {name: g for name, g in update.gradients.items() if name.startswith("0.")}
    found = gp.contains(nn.Sequential(*list(model)[:2]), gp.Update(first), x)
    assert found.verdicts == ("in",) * 24 + ("out",) * 100


def test_the_numbers_as_plain_values() -> None:
    found = ask(24)
    assert found.as_dict() == {
        "records": 124, "in": 24, "out": 100, "unknown": 0, "rank": 24,
        "false_positive_rate": pytest.approx(1e-6), "false_positives": 0, "non_members": 0,
        "power": 1.0, "reasons": {}, "space": "input", "layer": "0",
    }  # fmt: skip
    assert repr(found) == "Membership(124 records: 24 in, 100 out, 0 unknown; rank 24)"
    assert (len(found), int(found.mask("in").sum())) == (124, 24)


def test_an_update_of_nothing_says_nothing() -> None:
    model, x = default_model(6, 9, 2), draw(5, 6)
    nothing = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    assert set(gp.contains(model, gp.Update(nothing), x).verdicts) <= {"unknown"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": 3}, "update of type int: expected gradpeel.Update"),
        ({"model": 3}, "model of type int: expected a torch.nn.Module"),
        ({"records": torch.rand(3)}, "records of shape (3,): expected (batch, *sample_shape)"),
        ({"records": torch.rand(3, 5)}, "records of shape (3, 5) enters the target as (3, 5)"),
        ({"records": torch.full((1, 6), torch.nan)}, "records: 6 of 6 values are not finite"),
        ({"records": "x"}, "records of type str: expected a tensor of numbers"),
        ({"non_members": torch.rand(2, 5)}, "non_members of shape (2, 5) enters the target"),
        ({"labels": torch.zeros(2).long()}, "labels: 2 for 5 records: expected one each"),
        ({"labels": torch.full((5,), 7)}, "7"),
        ({"loss": "mean"}, "loss='mean': expected a loss"),
        ({"max_false_positive_rate": 0}, "max_false_positive_rate=0: expected a number between"),
        ({"max_false_positive_rate": True}, "max_false_positive_rate=True: expected a number"),
        ({"update": gp.Update({"a": torch.ones(2)})}, "update: no gradient '0.weight'"),
    ],
)
def test_errors_name_the_thing_and_the_rule(change: dict[str, object], message: str) -> None:
    model, x = default_model(6, 9, 2), draw(5, 6)
    update = gp.local_update(model, x, labels(5, 2))
    arguments: dict[str, object] = {"model": model, "update": update, "records": x} | change
    with pytest.raises(InputError) as error:
        gp.contains(**arguments)  # type: ignore[arg-type]
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "harus", "cifar10"])
@pytest.mark.parametrize("steps", [1, 20])
def test_on_real_data_nobody_is_missed_and_nobody_accused(
    data_dir: Path, name: str, steps: int
) -> None:
    dataset = load(data_dir / f"{name}.npz")
    x = torch.cat([torch.as_tensor(np.asarray(part)) for part in (dataset.x_train, dataset.x_test)])
    x = x.flatten(1).float()[np.random.default_rng(0).permutation(len(x))]
    model = default_model(x.shape[1], 500, dataset.classes)
    client = gp.Client(lr=0.1, local_steps=20, local_batch_size=16) if steps > 1 else gp.Client()
    update = gp.local_update(model, x[:256], labels(256, dataset.classes), client)
    found = gp.contains(model, update, x[:2256])
    assert found.verdicts == ("in",) * 256 + ("out",) * 2000


def test_an_audit_knows_who_took_part() -> None:
    model, x = default_model(60, 150, 4), draw(24, 60)
    attacker = gp.Attacker(effort=0.0)
    audit = gp.audit(model, x, labels(24), attacker=attacker)
    assert set(audit.membership.verdicts) == {"in"}
    assert audit.membership is audit.membership
    hidden = gp.audit(model, x, labels(24), client=gp.Client(noise=1.0), attacker=attacker)
    assert set(hidden.membership.verdicts) == {"unknown"}


def test_a_batch_that_fills_the_features_that_vary_says_so() -> None:
    # Border pixels never change: there are far fewer dimensions than features.
    data = load("digits")
    x, y = (torch.as_tensor(np.asarray(some[:60])) for some in (data.x_train, data.y_train))
    model = default_model(64, 300, 10)
    found = gp.contains(model, gp.local_update(model, x.float().flatten(1), y), x.flatten(1))
    assert set(found.verdicts) == {"unknown"}
    assert {str(reason).partition(",")[0] for reason in found.reasons} == {
        "the batch has at least as many samples as the layer can distinguish"
    }
